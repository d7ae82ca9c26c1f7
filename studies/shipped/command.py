"""Rows of the shipped models behind the figures and docs/reproduction.md, into studies/results/.

    python -m studies shipped shapes   (squares from 1x1 to 10x10 and every rectangle of 24 pixels, all test images)
    python -m studies shipped bounds   (attacks with 2x2, 5x5 and 8x8 patches: the bound from above)

On one thread of two busy cores, `shapes` took 12 minutes for cifar10-small and 27 for cifar10-votes, and `bounds` 4 to
10 minutes per patch for 100 images. Finished rows are kept; a stopped command continues where it was.
"""

from pathlib import Path
from typing import Annotated

import typer

from bagcert.attacks import AttackSettings
from bagcert.rows.format import Evaluation
from bagcert.stored_models import card, shipped_models
from studies.common.results import RESULTS
from studies.common.subject import Subject
from studies.figures.plan import (
    BOUND_PATCHES,
    CONDITIONS,
    RECTANGLES,
    SQUARES,
    bound_rows,
    shape_rows,
)

WORK = Path("runs/shipped")
Models = Annotated[list[str] | None, typer.Argument(help="shipped models; all if none is given")]
Images = Annotated[int, typer.Option(help="the first ones of the test set", min=1)]
Out = Annotated[Path, typer.Option(help="the folder of stored rows")]
DataDir = Annotated[Path | None, typer.Option(help="where data sets are kept")]


def shapes(models: Models = None, images: Images = 10_000, out: Out = RESULTS, data_dir: DataDir = None) -> None:
    """Certify against squares and rectangles of every form."""
    for model in models or list(shipped_models()):
        path = shape_rows(out, model)
        subject = Subject.find(model, model, data_dir)
        rules = CONDITIONS if subject.defense.scorer.step.bounds == (0, 1) else ("two-mask",)
        wanted = [Evaluation(patch, rule) for patch in (*SQUARES, *RECTANGLES) for rule in rules]
        rows = subject.certify(wanted, images, WORK, path)
        typer.echo(f"{model}: {len(rows.labels)} images, {len(rows.results)} evaluations in {path}")


def bounds(
    models: Models = None,
    images: Images = 100,
    patch: Annotated[list[str] | None, typer.Option(help="2x2, 5x5 and 8x8 if none is given")] = None,
    out: Out = RESULTS,
    data_dir: DataDir = None,
) -> None:
    """Attack the first test images by each model's own rule."""
    for model in models or list(shipped_models()):
        subject = Subject.find(model, model, data_dir)
        for each in patch or BOUND_PATCHES:
            wanted = Evaluation(each, card(model)["rule"])
            rows = subject.attack(wanted, images, AttackSettings(), WORK, bound_rows(out, model, each))
            low, high = rows.certified_accuracy, rows.attacked_accuracy
            typer.echo(f"{model}, {each}: certified {low:.2%} ≤ attacked {high:.2%} ≤ clean {rows.clean_accuracy:.2%}")
