"""Measure a trained task: clean, under any patch, and under attack; a row per picture."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bagcert.data import ArrayDataset
from bagcert.defense import Defense
from bagcert.files import pack, write_atomically
from bagcert.rules import IntegerScores
from studies.labels.attacked import descend
from studies.labels.tasks import Task
from studies.labels.tiles import Pictures, fixed_pictures

PATCHES = ("2x2", "5x5", "8x8", "10x10")
AT_ONCE = 50  # pictures


def parts_of(pictures: Pictures, scores: IntegerScores, count: int) -> Iterator[tuple[Pictures, IntegerScores]]:
    for start in range(0, min(count, len(pictures)), AT_ONCE):
        part = slice(start, min(start + AT_ONCE, count))
        yield Pictures(pictures.images[part], pictures.tiles[part]), scores.part(part)


def measure(
    task: Task, defense: Defense, dataset: ArrayDataset, pictures: int, attacked: int, steps: int, rows: Path
) -> dict[str, Any]:
    """The results of one task; `rows` gets one line per picture and patch."""
    device = defense.device
    validation = fixed_pictures(dataset.split("validation"), pictures, device)
    chosen = task.settle(defense.scores(validation.images), validation)
    test = fixed_pictures(dataset.split("test"), pictures, device)
    scores = defense.scores(test.images)
    found, lines = {}, []
    for patch in PATCHES:
        facing = defense.against(patch)
        tables = [task.columns(part, each, facing.regions) for each, part in parts_of(test, scores, len(test))]
        table = {name: torch.cat([each[name] for each in tables]) for name in tables[0]}
        hurt, broken = attack(task, facing, test, scores, attacked, steps)
        table["attacked"] = torch.cat([hurt, torch.full_like(table["wrong"][len(hurt) :], -1)])
        found[patch] = {
            "wrong": mean(table["wrong"]),
            "most_wrong": mean(table["most_wrong"]),
            "all_right": mean(table["wrong"] == 0),
            "all_right_certified": mean(table["most_wrong"] == 0),
            "pictures_attacked": len(hurt),
            "of_these": {
                "wrong": mean(table["wrong"][: len(hurt)]),
                "attacked": mean(hurt),
                "most_wrong": mean(table["most_wrong"][: len(hurt)]),
            },
            "broken": int(broken.sum()),
        }
        lines += rows_of(patch, table, test)
    write_atomically(rows, pack("".join(lines).encode(), rows.suffix))
    classes = len(dataset.classes)
    total = task.total(classes, defense.regions.grid)
    usual = task.majority(dataset.split("train").labels, test, classes)
    return {**chosen, "pictures": len(test), "of": total, "majority_wrong": usual * total, "patches": found}


def rows_of(patch: str, table: dict[str, Tensor], pictures: Pictures) -> list[str]:
    columns = {"tiles": pictures.tiles.flatten(1).tolist(), **{name: each.tolist() for name, each in table.items()}}
    rows = zip(*columns.values(), strict=True)
    return [
        json.dumps({"picture": number, "patch": patch, **dict(zip(columns, row, strict=True))}) + "\n"
        for number, row in enumerate(rows)
    ]


def mean(values: Tensor) -> float:
    return float(values.double().mean())


def attack(
    task: Task, defense: Defense, pictures: Pictures, scores: IntegerScores, count: int, steps: int
) -> tuple[Tensor, Tensor]:
    """The most that is wrong in each of the first pictures under attack, and whether a proof broke: two [count].

    Once at the weakest place of each picture, once at a random one.
    """
    worst, broken = [], []
    draw = torch.Generator().manual_seed(0)
    for number, (part, own) in enumerate(parts_of(pictures, scores, count)):
        before = task.columns(own, part, defense.regions)
        most, fault = before["wrong"], torch.zeros(len(part), dtype=torch.bool, device=defense.device)
        random = torch.randint(len(defense.regions), (len(part),), generator=draw).to(defense.device)
        for places in (task.weakest(own, part, defense.regions), random):
            for images in descend(defense, part.images, places, partial(task.target, pictures=part), steps, number):
                after = task.columns(defense.scores(images), part, defense.regions)
                most, fault = torch.maximum(most, after["wrong"]), fault | task.broken(before, after)
        worst.append(most)
        broken.append(fault)
    return torch.cat(worst), torch.cat(broken)
