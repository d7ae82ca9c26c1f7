"""The idea in eighteen seconds: `python docs/animation.py` draws docs/animation.svg from a shipped model and an image.

Every map and number in it is the model's own. The sticker is an attack on the plain sum of all windows, which it wins.
"""

import base64
import io
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

import bagcert
from bagcert.data import load_dataset

OUT = Path(__file__).parent / "animation.svg"
MODEL, IMAGE = "cifar10-small", 2  # a test image whose plain sum a sticker changes, and whose answer is proven
PLAIN = "detect:1000000"  # the argmax of plain sums: its alerts need a lead that no image has
LENGTH = 18.0  # seconds of one round
CELL = 8  # points per pixel and per score
PICTURE, MAP, TOP, SIDE = 30, 312, 84, 32 * CELL
BAR, HALF = 725, 112  # the middle of the bar that shows the lead, and half its length
BLUE, RED, INK, GRAY = "#1f6feb", "#d1242f", "#1f2328", "#59636e"
SECONDS = [(0, 0), (21, 3), (4, 21), (0, 18), (21, 21)]  # rows and columns where the second mask stops, then the worst
CUT = 0.01  # seconds from one number to the next
VOTE, STICKER, MASKS, END = (0.0, 4.8), (4.8, 8.8), (8.8, 14.2), (14.2, LENGTH)

Span = tuple[float, float]


@dataclass
class Film:
    """Shapes and when they are seen. Who asked for less motion sees the last scene."""

    shapes: list[str] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)

    def add(self, shape: str, seen: Span | None = None, fade: float = 0.25) -> None:
        if seen is None:
            self.shapes.append(shape)
            return
        start, end = seen
        times = [(0, int(start == 0)), (start, int(start == 0)), (start + fade, 1), (end, 1)]
        if end < LENGTH:
            times += [(end + fade, 0), (LENGTH, 0)]
        self.move(shape, [(at, f"opacity:{value}") for at, value in times], f"opacity:{int(end == LENGTH)}")

    def move(self, shape: str, times: list[tuple[float, str]], still: str) -> None:
        name = f"k{len(self.styles)}"
        frames = "".join(f"{100 * at / LENGTH:.2f}%{{{style}}}" for at, style in times)
        self.styles.append(
            f"@keyframes {name}{{{frames}}}.{name}{{{still};animation:{name} {LENGTH}s linear infinite}}"
        )
        self.shapes.append(f'<g class="{name}">{shape}</g>')

    def text(self) -> str:
        styles = "".join(self.styles) + "@media (prefers-reduced-motion:reduce){g{animation:none!important}}"
        font = "font:16px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 400" role="img"><title>{TITLE}</title>'
            f"<style>text{{{font}}}{styles}</style>"
            f'<rect width="880" height="400" rx="12" fill="#fff" stroke="#d0d7de"/>{"".join(self.shapes)}</svg>\n'
        )


TITLE = "Windows vote, a sticker outshouts them, two masks take it away, and the class stays"


def main() -> None:
    defense = bagcert.load(MODEL)
    batch = next(load_dataset("cifar10").split("test").batches(IMAGE + 1, "cpu"))
    clean = batch.images[[IMAGE]]
    attack = defense.against(rule=PLAIN).attack(clean, batch.labels[[IMAGE]])
    proof = defense.certify(clean)
    own, rival, box = int(proof.predicted[0]), int(attack.attacked[0]), attack.placement[0].tolist()
    assert own != rival and bool(proof.certified[0]) and int(defense.predict(attack.images)[0]) == own
    maps = defense.scores(torch.cat([clean, attack.images])).values.double() / 256
    leads = [scores[own] - scores[rival] for scores in maps]
    OUT.write_text(film(defense, clean[0], attack.images[0], leads, box, (own, rival)), encoding="utf-8")


def film(
    defense: bagcert.Defense,
    clean: Tensor,
    attacked: Tensor,
    leads: list[Tensor],
    box: list[int],
    pair: tuple[int, int],
) -> str:
    own, rival = (defense.classes[each] for each in pair)
    film = Film()
    reach = defense.scorer.footprint.receptive_field[0] // 2
    first = (box[0] - reach, box[1] - reach, box[2] + 2 * reach)  # row, column, side of the sticker's region
    captions = {
        VOTE: "Small windows look at the picture. Each says what it sees.",
        STICKER: "A sticker outshouts them all.",
        MASKS: "Take away what a sticker could reach, at any two places.",
        END: f"Only clean windows are left, and they say {own}.",
    }
    for seen, words in captions.items():
        film.add(write(440, 44, words, 24, INK, "middle", bold=True), seen)
    film.add(raster(clean.permute(1, 2, 0).numpy(), PICTURE), None)
    film.add(raster(attacked.permute(1, 2, 0).numpy(), PICTURE), (STICKER[0], LENGTH))
    film.add(frame(PICTURE, box[0], box[1], box[2], RED), (STICKER[0], LENGTH))
    film.add(raster(colors(leads[0], leads), MAP))
    film.add(raster(colors(leads[1], leads), MAP), (STICKER[0], LENGTH))
    film.add(frame(MAP, *first, RED), (STICKER[0], LENGTH))
    sweep(film, 2 * reach + 1)
    film.add(write(PICTURE, 368, "the picture", 16, GRAY))
    said = " or ".join(
        f'<tspan fill="{color}" font-weight="700">{name}</tspan>' for name, color in ((own, BLUE), (rival, RED))
    )
    film.add(write(MAP, 368, f"each window says {said}", 16, GRAY))
    film.add(write(BAR, 120, "all that is left, summed up", 16, GRAY, "middle"))
    film.add(f'<path d="M{BAR} 140V200" stroke="{GRAY}"/>')
    masks(film, leads[1], first)
    scale = max(float(lead.sum().abs()) for lead in leads)
    stops = [(VOTE[0] + 0.4, STICKER[0], float(leads[0].sum())), (STICKER[0], MASKS[0], float(leads[1].sum()))]
    stops += [(start, end, left(leads[1], first, place)) for start, end, place in hops(leads[1], first)]
    for start, end, lead in stops:
        tally(film, (start, end), lead, scale, own if lead > 0 else rival)
    film.add(write(BAR, 290, "PROVEN", 30, BLUE, "middle", bold=True), END)
    for line, words in enumerate((f"No {defense.threat} sticker, anywhere,", "changes this answer.")):
        film.add(write(BAR, 318 + 22 * line, words, 16, INK, "middle"), END)
    return film.text()


def sweep(film: Film, side: int) -> None:
    """A window that goes over the picture, and the map that it fills."""
    rows = 4
    seconds = (VOTE[1] - 1.0) / rows
    size, last = side * CELL, SIDE - side * CELL
    place = f'x="{PICTURE}" y="{TOP}" width="{size}" height="{size}"'
    window = f'<rect {place} fill="#fff3" stroke="#fff" stroke-width="5"/>'
    window += f'<rect {place} fill="none" stroke="{INK}" stroke-width="2"/>'
    times: list[tuple[float, str]] = []
    for row in range(rows):
        down = last * row / (rows - 1)
        left_to_right = [(row * seconds, 0), ((row + 1) * seconds - 0.01, last)]
        times += [(at, f"opacity:1;transform:translate({x}px,{down:.0f}px)") for at, x in left_to_right]
    at_rest = f"transform:translate({last}px,{last}px)"
    times += [(VOTE[1] - 0.9, f"opacity:0;{at_rest}"), (LENGTH, f"opacity:0;{at_rest}")]
    film.move(window, times, "opacity:0")
    high = SIDE // rows
    for row in range(rows):  # a cover over each quarter of the map, which runs out to the right
        cover = f'<rect x="{MAP}" y="{TOP + row * high}" width="{SIDE}" height="{high}" fill="#fff"/>'
        shares = [(0.0, 1), (row * seconds, 1), ((row + 1) * seconds, 0), (LENGTH, 0)]
        times = [(at, f"transform:scaleX({share})") for at, share in shares]
        film.move(cover, times, f"transform-origin:{MAP + SIDE}px 0;transform:scaleX(0)")


def hops(lead: Tensor, first: tuple[int, int, int]) -> list[tuple[float, float, tuple[int, int]]]:
    """When the second mask stops where; the last stop, until the end, is the one that takes most away."""
    side = first[2]
    places = [(row, column) for row in range(33 - side) for column in range(33 - side)]
    worst = min(places, key=lambda place: left(lead, first, place))
    times = np.linspace(MASKS[0] + 1.0, MASKS[1] - 0.6, len(SECONDS) + 1)
    stops = [(float(a), float(b), place) for (a, b), place in zip(pairwise(times), SECONDS, strict=True)]
    return [*stops, (float(times[-1]), LENGTH, worst)]


def left(lead: Tensor, first: tuple[int, int, int], second: tuple[int, int]) -> float:
    """What both masks leave of the lead."""
    kept = lead.clone()
    for row, column in (first[:2], second):
        kept[max(row, 0) : row + first[2], max(column, 0) : column + first[2]] = 0
    return float(kept.sum())


def masks(film: Film, lead: Tensor, first: tuple[int, int, int]) -> None:
    film.add(mask(*first), (MASKS[0] + 0.5, LENGTH))
    for start, end, (row, column) in hops(lead, first):
        film.add(mask(row, column, first[2]), (start, end), CUT)


def tally(film: Film, seen: Span, lead: float, scale: float, leader: str) -> None:
    """The bar and the words for one lead."""
    width, color = HALF * abs(lead) / scale, BLUE if lead > 0 else RED
    x = BAR if lead > 0 else BAR - width
    bar = f'<rect x="{x:.0f}" y="150" width="{width:.0f}" height="40" fill="{color}"/>'
    film.add(bar + write(BAR, 232, f"{leader} leads by {abs(lead):,.0f}", 20, color, "middle", bold=True), seen, CUT)


def raster(pixels: NDArray[np.float32], x: int) -> str:
    content = io.BytesIO()
    Image.fromarray((255 * pixels).round().astype(np.uint8)).save(content, "png", optimize=True)
    data = base64.b64encode(content.getvalue()).decode()
    shape = f'x="{x}" y="{TOP}" width="{SIDE}" height="{SIDE}"'
    return f'<image {shape} style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>'


def colors(lead: Tensor, both: list[Tensor]) -> NDArray[np.float32]:
    limit = float(both[0].abs().max())
    shares = (lead.clamp(-limit, limit) / limit + 1) / 2
    found: NDArray[np.float32] = matplotlib.colormaps["RdBu"](shares.numpy())[:, :, :3].astype(np.float32)
    return found


def frame(x: int, row: int, column: int, side: int, color: str) -> str:
    place = f'x="{x + CELL * column}" y="{TOP + CELL * row}" width="{CELL * side}" height="{CELL * side}"'
    return f'<rect {place} fill="none" stroke="{color}" stroke-width="3"/>'


def mask(row: int, column: int, side: int) -> str:
    place = f'x="{MAP + CELL * column}" y="{TOP + CELL * row}" width="{CELL * side}" height="{CELL * side}"'
    return f'<rect {place} fill="#24292f" stroke="#fff" stroke-width="2"/>'


def write(x: float, y: float, words: str, size: int, color: str, anchor: str = "start", bold: bool = False) -> str:
    style = f"font-size:{size}px" + (";font-weight:700" if bold else "")
    return f'<text x="{x}" y="{y}" fill="{color}" text-anchor="{anchor}" style="{style}">{words}</text>'


if __name__ == "__main__":
    main()
