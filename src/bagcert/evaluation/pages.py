"""Tables in pages that people write: between `<!-- NAME -->` and `<!-- /NAME -->`."""

import re
from collections.abc import Sequence

Lines = list[tuple[str, ...]]  # the first one is the head


def put_table(page: str, name: str, lines: Sequence[tuple[str, ...]]) -> str:
    """The page with that table as given now."""
    heads, *rest = lines
    body = "".join(f"| {' | '.join(line)} |\n" for line in (heads, ("---",) * len(heads), *rest))
    between = re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", re.DOTALL)
    assert len(between.findall(page)) == 1, name
    return between.sub(lambda _: body, page)
