"""The figures by name, in the paper's order; `bounds` is not in the paper."""

from collections.abc import Callable, Iterator
from pathlib import Path

from bagcert.files import write_atomically
from studies.figures.attack_example import attack_example
from studies.figures.attacked import attacked, bounds
from studies.figures.conditions import clean_certified
from studies.figures.one_dimension import certification_1d, training_1d
from studies.figures.patches import aspect_ratios, patch_sizes
from studies.figures.score_functions import score_functions
from studies.figures.stored_results import Drawn, Stock

FIGURES: dict[str, Callable[[Stock], Drawn]] = {
    "training-1d": training_1d,
    "clean-certified": clean_certified,
    "patch-sizes": patch_sizes,
    "aspect-ratios": aspect_ratios,
    "certification-1d": certification_1d,
    "attack-example": attack_example,
    "attacked": attacked,
    "bounds": bounds,
    "score-functions": score_functions,
}


def write_figures(names: list[str], stock: Stock, out: Path) -> Iterator[tuple[str, Drawn]]:
    """Draw these figures and write each as SVG and PNG, one after the other."""
    for name in names:
        drawn = FIGURES[name](stock)
        if drawn.picture is not None:
            write_atomically(out / f"{name}.svg", drawn.picture.svg.encode())
            write_atomically(out / f"{name}.png", drawn.picture.png)
        yield name, drawn
