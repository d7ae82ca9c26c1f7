"""Tables in pages that people write: between `<!-- NAME -->` and `<!-- /NAME -->`."""

import re

Lines = list[tuple[str, ...]]  # the first one is the head


def markdown(lines: Lines) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (lines[0], ("---",) * len(lines[0]), *lines[1:]))


def place_of(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", re.DOTALL)


def fill(page: str, name: str, lines: Lines) -> str:
    """The page with that table as given now; one that has no place for it is left without it."""
    return place_of(name).sub(lambda _: markdown(lines), page)


def put_table(page: str, name: str, lines: Lines) -> str:
    """The same for a page of ours, which must have just one place for it."""
    assert len(place_of(name).findall(page)) == 1, name
    return fill(page, name, lines)
