"""What one rival's run does: train, certify, attack, and measure what it costs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from bagcert.defenses.load import card, shipped_models
from bagcert.errors import unknown_name
from bagcert.evaluation.comparison.costs import Training, read_cost, write_cost
from bagcert.evaluation.comparison.plan import (
    MAIN_PATCH,
    OURS,
    RIVALS,
    Rival,
    attack_path,
    cost_path,
    rows_path,
)
from bagcert.evaluation.comparison.ties import TIE_RULES
from bagcert.evaluation.rows import Evaluation
from bagcert.files import read_tensors
from bagcert.scorers.networks import kind_of
from bagcert.scorers.saved import load_scorer
from bagcert.training.folder import RunFolder, save_run
from bagcert.training.loop import Order
from bagcert.training.recipe import Recipe, load_recipe
from benchmarks.rivals_costs import Meter
from benchmarks.rivals_scale import PLANNED, Scale
from benchmarks.storing import Subject
from benchmarks.sweep_runs import train_quietly

CUT = "bagcert"  # the paper's own network, whose 350 epochs are cut to minutes


@dataclass(frozen=True)
class Bench:
    """Where the runs find and leave their files, and how long the cut training may take."""

    scale: Scale
    results: Path
    work: Path  # run folders and rows that are not complete
    data_dir: Path | None = None
    cut_minutes: float = 8.0


def matching(patterns: list[str]) -> list[str]:
    """The names of rivals and shipped models that fit, in the order they are run: weights are taken over at once."""
    places = {rival.name: place for place, rival in enumerate(RIVALS)}
    ordered = sorted(RIVALS, key=lambda rival: places[rival.weights_of or rival.name])
    known = [*OURS, *(rival.name for rival in ordered)]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise unknown_name("a rival or shipped model", pattern, known)
    return [name for name in known if any(fnmatchcase(name, pattern) for pattern in patterns)]


def is_done(name: str, bench: Bench) -> bool:
    """Are all files there? Of a shipped model that has been shipped anew since, its costs are not."""
    cost = cost_path(bench.results, name)
    if name in OURS:
        return cost.exists() and read_cost(cost).weights_sha256 == card(name)["weights_sha256"]
    rival = rival_of(name)
    parts = (rows_path(bench.results, part) for part in rival.parts)
    return all(path.exists() for path in (*parts, attack_path(bench.results, name), cost))


def rival_of(name: str) -> Rival:
    return next(rival for rival in RIVALS if rival.name == name)


def carry_out(name: str, bench: Bench) -> str:
    """Do what is left; returns the numbers in words."""
    return measure_ours(name, bench) if name in OURS else run_rival(rival_of(name), bench)


def measure_ours(name: str, bench: Bench) -> str:
    """A shipped model has rows already: only its costs are measured."""
    subject = Subject.find(shipped_models()[name], name, bench.data_dir)
    facts = card(name)
    own = Evaluation(MAIN_PATCH, facts["rule"])
    with one_precision(subject) as (subject, meter):
        cost = meter.cost(subject, own, bench.scale.effort(name).timed, training_facts(facts, facts["command"]))
    write_cost(cost_path(bench.results, name), cost)
    return f"{cost.seconds:.1f} s for 10,000 images"


def run_rival(rival: Rival, bench: Bench) -> str:
    """Train on all training images (nothing is chosen by these runs), certify, attack, measure."""
    folder, effort = bench.work / rival.name, bench.scale.effort(rival.name)
    facts = trained(rival, bench, folder)
    subject = Subject.find(folder, rival.name, bench.data_dir)
    with one_precision(subject) as (subject, meter):
        shares = None
        for part, evaluations in rival.parts.items():
            images = effort.images if rival.main in evaluations else effort.other_images
            rows = subject.certify(evaluations, images, folder, rows_path(bench.results, part))
            shares = rows.accuracies(rival.main) if rival.main in evaluations else shares
        attack = attack_path(bench.results, rival.name)
        attacked = subject.attack(rival.main, effort.attacked, effort.attack, folder, attack)
        cost = meter.cost(subject, rival.main, effort.timed, facts, TIE_RULES.get(rival.name))
    write_cost(cost_path(bench.results, rival.name), cost)
    assert shares is not None
    return (
        f"clean {shares.clean:.2%}, certified {shares.certified:.2%}, attacked {attacked.attacked_accuracy:.2%}; "
        f"{cost.seconds:.1f} s for 10,000 images, {facts.seconds:.0f} s of training"
    )


def recipe_of(rival: Rival, scale: Scale) -> Recipe:
    recipe = load_recipe(rival.entry.recipe)
    settings = [*scale.networks.get(kind_of(recipe.network), ()), *scale.every]
    cut = ["evaluation.times=1"] if rival.name == CUT else []
    return load_recipe(rival.entry.recipe, [*settings, *cut])


def trained(rival: Rival, bench: Bench, folder: Path) -> Training:
    """Train what is left, or take over the weights of a training that is the same."""
    recipe = recipe_of(rival, bench.scale)
    if rival.weights_of is None:
        minutes = bench.cut_minutes if rival.name == CUT and bench.scale is PLANNED else None
        train_quietly(recipe, Order(folder, bench.data_dir, final=True, resume=True, minutes=minutes))
        return training_facts(card(folder), rival.entry.recipe)
    other = rival_of(rival.weights_of)
    facts = trained(other, bench, bench.work / other.name)
    if not RunFolder(folder).config.exists():
        take_over(bench.work / other.name, recipe, folder)
    return replace(facts, weights_of=other.name)


def take_over(run: Path, recipe: Recipe, folder: Path) -> None:
    """The run of another recipe as one of this recipe: the same weights, another score step and rule."""
    scorer, facts = load_scorer(run)
    tensors, _ = read_tensors(RunFolder(run).weights)
    same = ("classes", "data", "seed", "steps", "seconds", "device", "processes", "versions")
    own = {"patch": recipe.evaluation.patch, "rule": recipe.evaluation.rule, "recipe": recipe.table()}
    rebuilt = recipe.network.build(scorer.footprint.image_size, mean=(0.0,), std=(1.0,))
    save_run(RunFolder(folder), rebuilt, tensors, {key: facts[key] for key in same} | own)


def training_facts(facts: dict[str, Any], recipe: str) -> Training:
    """What a card says of its training; the number of images is that of all training images."""
    batch = facts["recipe"]["training"]["batch_size"]
    return Training(recipe, round(facts["steps"] * batch / 50_000, 2), facts["seconds"], facts["device"])


@contextmanager
def one_precision(subject: Subject) -> Iterator[tuple[Subject, Meter]]:
    """Certify, attack and measure in one arithmetic, which the rows name: bfloat16 on a GPU, as in training."""
    device = next(subject.defense.scorer.parameters()).device
    precision = "bfloat16" if device.type == "cuda" else "float32"
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
        yield replace(subject, header={**subject.header, "precision": precision}), Meter(device, precision)
