"""Tables in pages that people write: between `<!-- NAME -->` and `<!-- /NAME -->`."""

import re

Lines = list[tuple[str, ...]]  # the first line is the head


def markdown(lines: Lines) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (lines[0], ("---",) * len(lines[0]), *lines[1:]))


def place_of(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", re.DOTALL)


def fill(page: str, name: str, lines: Lines) -> str:
    """The page with that table replaced; a page without marks for it stays as it is."""
    return place_of(name).sub(lambda _: markdown(lines), page)


def put_table(page: str, name: str, lines: Lines) -> str:
    """The same for a page of ours, which must have exactly one pair of marks for it."""
    assert len(place_of(name).findall(page)) == 1, name
    return fill(page, name, lines)
