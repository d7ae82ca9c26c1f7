"""What one rival's run does: train, certify, attack."""

import json
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bagcert.errors import unknown_name
from bagcert.files import read_json, read_tensors, write_atomically
from bagcert.scorers.weights import kind_of, load_scorer
from bagcert.stored_models import card
from bagcert.training.loop import RunOptions
from bagcert.training.recipe import Recipe, load_recipe
from bagcert.training.run import RunFolder, save_run
from studies.common.subject import Subject, one_precision
from studies.common.training import train_quietly
from studies.rivals.costs import Training, read_cost
from studies.rivals.plan import OURS, RIVALS, Rival, attack_path, cost_path, rows_path
from studies.rivals.scale import EFFORTS, PLANNED, Scale

BESIDE = "beside.json"  # in a run folder: how many processes shared the device
CUT = "bagcert"  # the paper's own network, whose 350 epochs are cut to minutes


@dataclass(frozen=True)
class Bench:
    """Where the runs find and leave their files, and how long the cut training may take."""

    scale: Scale
    results: Path
    work: Path  # run folders and rows that are not complete
    data_dir: Path | None = None
    cut_minutes: float = 8.0
    processes: int = 1  # that share the device


def matching(patterns: list[str]) -> list[str]:
    """The matching rivals and shipped models in the order they run: first the runs whose weights others take over."""
    places = {rival.name: place for place, rival in enumerate(RIVALS)}
    ordered = sorted(RIVALS, key=lambda rival: places[rival.weights_of or rival.name])
    known = [*OURS, *(rival.name for rival in ordered)]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise unknown_name("rival or shipped model", pattern, known)
    return [name for name in known if any(fnmatchcase(name, pattern) for pattern in patterns)]


def jobs(names: list[str], bench: Bench) -> list[list[str]]:
    """What is left to train, certify and attack, what takes longest first.

    One job each, but one after the other where weights are taken over.
    """
    groups: dict[str, list[str]] = {}
    for rival in (rival_of(name) for name in names if not is_prepared(name, bench)):
        groups.setdefault(rival.weights_of or rival.name, []).append(rival.name)
    return sorted(groups.values(), key=lambda group: (CUT not in group, group[0] not in EFFORTS))


def is_prepared(name: str, bench: Bench) -> bool:
    """Are all rows there? A shipped model comes with its rows."""
    if name in OURS:
        return True
    parts = (rows_path(bench.results, part) for part in rival_of(name).parts)
    return all(path.exists() for path in (*parts, attack_path(bench.results, name)))


def is_done(name: str, bench: Bench) -> bool:
    """Are its costs there too, and of the same weights?"""
    cost = cost_path(bench.results, name)
    if not is_prepared(name, bench) or not cost.exists():
        return False
    return name not in OURS or read_cost(cost).weights_sha256 == card(name)["weights_sha256"]


def rival_of(name: str) -> Rival:
    return next(rival for rival in RIVALS if rival.name == name)


def prepare(names: list[str], bench: Bench) -> str:
    """Do what is left of a job, except measuring its costs; returns the numbers in words."""
    return "; ".join(f"{name}: {run(rival_of(name), bench)}" for name in names)


def run(rival: Rival, bench: Bench) -> str:
    """Train on all training images (nothing is chosen by these runs), certify, attack."""
    folder, effort = bench.work / rival.name, bench.scale.effort(rival.name)
    training = trained(rival, bench, folder)
    words = f"{training.seconds:.0f} s of training"
    with one_precision(Subject.find(folder, rival.name, bench.data_dir)) as subject:
        for part, evaluations in rival.parts.items():
            images = effort.images if rival.main in evaluations else effort.other_images
            rows = subject.certify(evaluations, images, folder, rows_path(bench.results, part))
            if rival.main in evaluations:
                shares = rows.accuracies(rival.main)
                words += f", clean {shares.clean:.2%}, certified {shares.certified:.2%}"
        attack = attack_path(bench.results, rival.name)
        attacked = subject.attack(rival.main, effort.attacked, effort.attack, folder, attack)
    return f"{words}, attacked {attacked.attacked_accuracy:.2%}"


def recipe_of(rival: Rival, scale: Scale) -> Recipe:
    recipe = load_recipe(rival.entry.recipe)
    settings = [*scale.networks.get(kind_of(recipe.network), ()), *scale.every]
    # A tenth of what is left of the schedule: the paper's 10 of 350 epochs would be over after a hundred steps.
    cut = ["evaluation.times=1", "schedule.warmup_epochs=35"] if rival.name == CUT else []
    return load_recipe(rival.entry.recipe, [*cut, *settings])


def trained(rival: Rival, bench: Bench, folder: Path) -> Training:
    """Train what is left, or take over the weights of a training that is the same."""
    recipe = recipe_of(rival, bench.scale)
    if rival.weights_of is None:
        minutes = bench.cut_minutes if rival.name == CUT and bench.scale == PLANNED else None
        if not RunFolder(folder).config.exists():
            write_atomically(folder / BESIDE, json.dumps({"processes": bench.processes}).encode())
            train_quietly(recipe, RunOptions(folder, bench.data_dir, final=True, resume=True, minutes=minutes))
        beside = read_json(folder / BESIDE)["processes"] - 1
        return replace(training_facts(card(folder), rival.entry.recipe), beside=beside)
    other = rival_of(rival.weights_of)
    facts = trained(other, bench, bench.work / other.name)
    if not RunFolder(folder).config.exists():
        take_over(bench.work / other.name, recipe, folder)
    return replace(facts, weights_of=other.name)


def take_over(run: Path, recipe: Recipe, folder: Path) -> None:
    """The run of another recipe as a run of this recipe: the same weights, another score step and rule."""
    scorer, facts = load_scorer(run)
    tensors, _ = read_tensors(RunFolder(run).weights)
    same = ("classes", "data", "seed", "steps", "seconds", "device", "processes", "versions")
    own = {"patch": recipe.evaluation.patch, "rule": recipe.evaluation.rule, "recipe": recipe.table()}
    rebuilt = recipe.network.build(scorer.footprint.image_size, mean=(0.0,), std=(1.0,))
    save_run(RunFolder(folder), rebuilt, tensors, {key: facts[key] for key in same} | own)


def training_facts(facts: dict[str, Any], recipe: str) -> Training:
    """What a card says of its training; the number of images is that of all training images."""
    epochs = facts.get("epochs")
    if epochs is None:
        epochs = round(facts["steps"] * facts["recipe"]["training"]["batch_size"] / 50_000, 2)
    return Training(recipe, epochs, facts["seconds"], facts["device"], facts.get("beside", 0))
