"""What one run on photographs does: train, certify, attack, rank."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bagcert.attacks import AttackSettings
from bagcert.program import usual_device
from bagcert.rows.format import Evaluation
from bagcert.rules import EveryRegion
from bagcert.rules.scores import sums
from bagcert.stored_models import card
from bagcert.training.loop import RunOptions
from bagcert.training.recipe import load_recipe
from bagcert.training.run import RunFolder
from studies.common.results import provenance, write_results
from studies.common.subject import Subject, one_precision
from studies.common.training import read_log, steady_mean, train_quietly

PATCHES = ("6x6", "9x9", "11x11")  # 0.9, 2.0 and 3.0 % of 64x64
MAIN = "9x9"
BEST = 5
RUNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "two-mask": ("two-mask-tiny-imagenet", ()),
    "rf17": ("tiny-imagenet-rf17", ()),
    "rf17-one-hot-0.3": ("tiny-imagenet-rf17", ("loss.one_hot=0.3",)),
    "rf17-one-hot-0": ("tiny-imagenet-rf17", ("loss.one_hot=0.0",)),
    "rf25": ("tiny-imagenet-rf25", ()),
    "rf29": ("tiny-imagenet-rf29", ()),
}
CURVE = ("evaluation.times=20", "evaluation.images=1000")
TINY = (
    *("network.width=16", "training.batch_size=20", "schedule.epochs=0.002", "schedule.warmup_epochs=0"),
    *("evaluation.times=2", "evaluation.images=20", "evaluation.batch_size=20"),
)


@dataclass(frozen=True)
class Bench:
    """Where the runs find and leave their files, and how much they do."""

    photographs: Path
    results: Path
    work: Path
    minutes: float  # of training
    tiny: bool

    def path(self, name: str, ending: str) -> Path:
        return self.results / "photographs" / f"{name}{ending}"

    def is_done(self, name: str) -> bool:
        return all(self.path(name, ending).exists() for ending in (".jsonl.gz", "-attack.jsonl.gz", ".json"))


def carry_out(names: list[str], bench: Bench) -> str:
    """Train, certify, attack and rank, as far as it is not done yet."""
    (name,) = names
    recipe_name, settings = RUNS[name]
    folder = bench.work / name
    place = f"data.name={json.dumps(str(bench.photographs))}"
    recipe = load_recipe(recipe_name, [*settings, place, *(TINY if bench.tiny else CURVE)])
    if not RunFolder(folder).config.exists():
        train_quietly(
            recipe, RunOptions(folder, final=False, resume=True, minutes=None if bench.tiny else bench.minutes)
        )
    rules = ("two-mask",) if recipe.evaluation.rule == "two-mask" else ("every-region", "two-mask")
    evaluations = [Evaluation(patch, rule) for patch in PATCHES for rule in rules]
    main = Evaluation(MAIN, recipe.evaluation.rule)
    images, attacked = (20, 2) if bench.tiny else (5_000, 1_000)
    with one_precision(Subject.find(folder, name, None)) as subject:
        rows = subject.certify(evaluations, images, folder, bench.path(name, ".jsonl.gz"))
        broken = subject.attack(main, attacked, AttackSettings(), folder, bench.path(name, "-attack.jsonl.gz"))
        ranks = best_shares(subject, images)
    facts = {key: card(folder)[key] for key in ("recipe", "seed", "steps", "seconds", "device", "validation")}
    log = read_log(folder)
    waited = round(steady_mean(log, "waited_for_images"), 4)
    curve = [line for line in log if "certified" in line]
    content = {"run": name, **facts, **ranks, "curve": curve, "waited_for_images": waited}
    head = provenance("studies photographs run", ["FOLDER", "--each", bench.minutes], usual_device(), facts["seed"])
    write_results(bench.path(name, ".json"), head, content)
    shares = rows.accuracies(main)
    words = f"clean {shares.clean:.2%}, certified {shares.certified:.2%}, attacked {broken.attacked_accuracy:.2%}"
    return f"{name}: {words}"


@torch.no_grad()
def best_shares(subject: Subject, images: int) -> dict[str, Any]:
    """How often the label is among the five best sums and, for votes, how often no patch can push it out."""
    defense, device = subject.defense, next(subject.defense.scorer.parameters()).device
    votes = defense.scorer.step.bounds == (0, 1)
    regions = {patch: defense.against(patch, "every-region").regions for patch in PATCHES} if votes else {}
    seen, clean, kept = 0, 0, dict.fromkeys(regions, 0)
    for batch in subject.source.batches(defense.batch_size, device):
        scores = defense.scores(batch.images)
        totals = sums(scores.values)
        own = totals.gather(1, batch.labels[:, None])
        clean += int(((totals >= own).sum(dim=1) <= BEST).sum())
        for patch, places in regions.items():
            kept[patch] += int((EveryRegion().worst_rank(scores, batch.labels, places) <= BEST).sum())
        seen += len(batch.labels)
        if seen >= images:
            break
    return {
        "images": seen,
        "clean_top5": clean / seen,
        "certified_top5": {patch: count / seen for patch, count in kept.items()},
    }
