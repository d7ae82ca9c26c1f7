"""Broken pictures: files of every kind with random changes."""

import random
import zlib

from tests.server.files import animated, bad_files, good_files, many_scans

EDGES = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff", b"\xff\xda")


def seeds() -> list[bytes]:
    """The files that mutations start from; each is short, so that a change hits something."""
    wrong = [content for content, _ in bad_files().values() if len(content) < 2**16]
    return [*good_files().values(), *wrong, animated("GIF"), many_scans(3)]


def mutate(stock: list[bytes], draw: random.Random) -> bytes:
    """One of the files with one to eight changes; half of the PNGs get valid checksums, so that more is read."""
    content = bytearray(draw.choice(stock))
    for _ in range(draw.choice((1, 1, 1, 2, 4, 8))):
        first = min(len(content), draw.choice((0, 16, 16, 16)))  # a file without its signature is rejected at once
        place = draw.randrange(first, len(content) + 1)
        change = draw.randrange(6)
        if change == 0 and place < len(content):
            content[place] ^= 1 << draw.randrange(8)
        elif change == 1:
            edge = draw.choice(EDGES)
            content[place : place + len(edge)] = edge
        elif change == 2:
            del content[place : place + draw.choice((1, 4, 16, 400))]
        elif change == 3:
            content[place:place] = draw.randbytes(draw.choice((1, 4, 16, 400)))
        elif change == 4:
            other = draw.choice(stock)
            content[place:] = other[draw.randrange(len(other) + 1) :]
        else:
            content[place:place] = content[place : place + draw.choice((4, 32, 256))] * draw.choice((1, 3, 20))
    return checked(bytes(content)) if draw.random() < 0.5 else bytes(content)


def checked(content: bytes) -> bytes:
    """A PNG with the checksums of its chunks corrected; any other file unchanged."""
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        return content
    made, place = content[:8], 8
    while place + 12 <= len(content):
        length = int.from_bytes(content[place : place + 4], "big")
        end = place + 8 + length
        if end + 4 > len(content):
            break
        made += content[place:end] + zlib.crc32(content[place + 4 : end]).to_bytes(4, "big")
        place = end + 4
    return made + content[place:]
