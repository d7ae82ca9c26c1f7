"""Certify networks of different receptive fields together: the two-mask rule on the sum of their score maps.

    bagcert train two-mask-cifar10 --set 'network.width=[192,192,192,576,576,576,576,576,576]' --out runs/seven
    bagcert train two-mask-cifar10 --set 'network.width=[192,576,576,576,576,576,576]' \\
        --set 'network.kernels=[3,1,1,1,1,1]' --out runs/five
    python -m studies frontier runs/seven runs/five --mirrored --join runs/pair

It prints one line of JSON: the accuracies, by `two-mask` and at a threshold of 0 by `detect`, and how the scores were
computed. `--counted 1.5 --counted 1` multiplies the scores of the first network. It runs on the GPU if there is one. A
mirrored pair of this size takes about three seconds per image on one thread of two busy cores. The run that `--join`
names holds all networks: `bagcert certify runs/pair` makes these decisions by the rule of the package, up to the
rounding of scores.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer

from bagcert.data import load_dataset
from bagcert.errors import UsageError
from bagcert.program import Program, usual_device
from bagcert.scorers.base import BuiltScorer
from bagcert.scorers.weights import load_scorer
from studies.frontier.certificate import Decisions, certify, joined
from studies.frontier.joined import join_runs

PATCH = 5
BATCH = 16


def frontier(
    runs: Annotated[list[Path], typer.Argument(help="run folders of networks")],
    mirrored: Annotated[bool, typer.Option("--mirrored", help="score the mirror image as well")] = False,
    counted: Annotated[
        list[float] | None, typer.Option(help="by how much its scores are multiplied, run by run")
    ] = None,
    split: Annotated[str, typer.Option(help="train, validation or test")] = "validation",
    images: Annotated[int | None, typer.Option(help="the first ones of the split; all if left out", min=1)] = None,
    decisions: Annotated[Path | None, typer.Option(help="write a line per image to this file")] = None,
    join: Annotated[Path | None, typer.Option(help="also write the networks as one run into this folder")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
) -> None:
    """Sum the score maps of several networks, mask each by its own footprint, and certify against 5x5 patches."""
    times = counted or [1.0] * len(runs)
    if len(times) != len(runs) or not all(0 < each < math.inf for each in times):
        raise UsageError(f"Repeat --counted for each run, above 0, but it is {times} for {len(runs)} runs.")
    loaded = [load_scorer(run) for run in runs]
    device = usual_device()
    scorers = [scorer.to(device) for scorer, _ in loaded]
    names = sorted({card["data"]["name"] for _, card in loaded})
    steps = sorted({scorer.step.name for scorer in scorers})
    if len(names) > 1 or len(steps) > 1:
        raise UsageError(f"All runs must share one data set and one score step, but have {', '.join(names + steps)}.")
    step, one = scorers[0].step, torch.ones(1, 1, 1, 1)
    if counted and not torch.equal(step.fixed(2 * one), 2 * step.fixed(one)):
        raise UsageError(
            f"--counted multiplies logits, but these networks have the score step '{steps[0]}'. Leave it out."
        )
    if join is not None:
        join_runs(runs, mirrored, join, times)
    source = load_dataset(names[0], data_dir).split(split)
    found, labels = [], []
    left = min(images or len(source), len(source))
    for batch in source.batches(BATCH, device):
        shown = batch.images[:left]
        found.append(decide(scorers, shown, mirrored, times))
        labels.append(batch.labels[: len(shown)])
        left -= len(shown)
        if not left:
            break
    together, label = joined(found), torch.cat(labels)
    if decisions is not None:
        columns = {"label": label, **vars(together)}
        lines = torch.stack([column.long() for column in columns.values()], dim=1).tolist()
        header = json.dumps(list(columns))
        decisions.write_text("\n".join([header, *map(json.dumps, lines)]) + "\n", encoding="utf-8")
    row = {
        "runs": [str(run) for run in runs],
        "mirrored": mirrored,
        "counted": times,
        "split": split,
        "images": len(label),
        "patch": f"{PATCH}x{PATCH}",
        "rule": "two-mask",
        **together.accuracies(label),
        **Program(device=str(device), batch=0, channels_last=False).describe(),
    }
    typer.echo(json.dumps(row))


def decide(
    scorers: list[BuiltScorer], images: torch.Tensor, mirrored: bool, counted: Sequence[float] = ()
) -> Decisions:
    """The decisions of all networks together. A mirrored map has the same footprint once it is mirrored back."""
    maps = []
    for scorer, times in zip(scorers, counted or [1.0] * len(scorers), strict=True):
        scores = scorer.scores(images)
        both = scores + scorer.scores(images.flip(-1)).flip(-1) if mirrored else scores
        maps.append((both.double() * times).round())
    return certify(maps, [scorer.footprint for scorer in scorers], PATCH)
