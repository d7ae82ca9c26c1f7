"""The figures by name, in the paper's order; `bounds` is not in the paper."""

from collections.abc import Callable, Iterator
from pathlib import Path

from bagcert.evaluation.figures.attack_example import attack_example
from bagcert.evaluation.figures.attacked import attacked, bounds
from bagcert.evaluation.figures.conditions import clean_certified
from bagcert.evaluation.figures.one_dimension import certification_1d, training_1d
from bagcert.evaluation.figures.patches import aspect_ratios, patch_sizes
from bagcert.evaluation.figures.score_functions import score_functions
from bagcert.evaluation.figures.stock import Drawn, Stock
from bagcert.files import write_atomically

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
