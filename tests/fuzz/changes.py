"""Changes to files: of any bytes, and of the values in JSON and TOML, which pass the first checks."""

import json
import random
import re
from typing import Any

from tests.server.mutations import mutate

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 3.5, 2**12, 2**31, 2**63, -(2**63), 10**30, 1e308, float("nan"), float("inf")),
    *(
        "",
        "x",
        "two-mask",
        "1x1",
        "99x99",
        "area:4",
        "2*1x1",
        "masks:0",
        "disk:999999",
        f"detect:{'9' * 5000}",
        "\x00",
        "é" * 300,
        "../" * 9,
    ),
    *([], {}, [[]], [0, 0], [1, -1], [[1, 1]] * 3, {"name": "residual"}, {"a": {}}),
)
TOML = ("nan", "inf", "-1", "0", "1e400", "[]", "{}", "''", "true", "[[[]]]", "9" * 30, "'../x'", "1979-05-27")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside a JSON value."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, part in parts for found in places(part, (*path, key)))]


def changed_json(content: bytes, draw: random.Random) -> bytes:
    """One value replaced, removed, doubled or nested deeply."""
    try:
        value = json.loads(content)
    except (RecursionError, ValueError):
        return mutate([content], draw)
    way = draw.choice(places(value)[1:] or [()])
    if not way:
        return json.dumps(draw.choice(ODD)).encode()
    inner = value
    for key in way[:-1]:
        inner = inner[key]
    change = draw.randrange(5)
    if change == 0:
        del inner[way[-1]]
    elif change == 1:
        inner[way[-1]] = [inner[way[-1]]] * draw.choice((1, 2, 40))
    elif change == 2 and isinstance(inner, dict):
        inner[draw.choice(("", "name", "images", "zzz"))] = draw.choice(ODD)
    else:
        inner[way[-1]] = draw.choice(ODD)
    text = json.dumps(value)
    return text.replace("0", "[" * 3000 + "]" * 3000, 1).encode() if draw.random() < 0.02 else text.encode()


def changed(file: str, content: bytes, draw: random.Random) -> bytes:
    """A file with one to three changes that suit its kind, or with any changed bytes."""
    if draw.random() < 0.3:
        return mutate([content], draw)
    for _ in range(draw.choice((1, 1, 2, 3))):
        if file.endswith(".json"):
            content = changed_json(content, draw) if content[:1] == b"{" else content
        elif file.endswith(".jsonl"):
            lines = content.splitlines(keepends=True)
            place = draw.randrange(len(lines))
            if draw.random() < 0.2:
                lines[place:place] = [draw.choice(lines)]
            elif lines[place][:1] == b"{":
                lines[place] = changed_json(lines[place], draw) + b"\n"
            content = b"".join(lines)
        elif file.endswith(".toml"):
            values = list(re.finditer(rb"(?<== )[^\n]+", content))
            if values:
                chosen = draw.choice(values)
                content = content[: chosen.start()] + draw.choice(TOML).encode() + content[chosen.end() :]
        elif file.endswith(".safetensors"):
            length = int.from_bytes(content[:8], "little")
            header = changed_json(content[8 : 8 + length], draw) if length < len(content) else b"{}"
            content = len(header).to_bytes(8, "little") + header + content[8 + length :]
            return content
        else:
            return mutate([content], draw)
    return content
