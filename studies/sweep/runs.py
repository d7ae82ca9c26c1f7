"""What one run of the sweep does: train, and keep the rows or the log behind a figure."""

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from bagcert.attacks import AttackSettings
from bagcert.data import load_dataset
from bagcert.errors import unknown_name
from bagcert.files import write_atomically
from bagcert.program import versions
from bagcert.rows.format import Evaluation
from bagcert.scorers.residual import CIFAR_KERNELS
from bagcert.training.loop import RunOptions
from bagcert.training.recipe import Recipe, load_recipe
from bagcert.training.run import Diverged
from studies.common.subject import Subject
from studies.common.training import read_log, train_quietly
from studies.figures.plan import (
    MAIN_PATCH,
    SCORE_RUNS,
    SWEEP,
    SWEEP_EVALUATIONS,
    ScoreRun,
    SweepModel,
    read_curve,
    score_curve,
    sweep_attack,
    sweep_rows,
)

SweepRun = SweepModel | ScoreRun


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    settings: tuple[str, ...]  # of every recipe
    model_epochs: float
    score_epochs: float
    score_points: int  # of a curve over training
    certified: int  # test images
    attacked: int
    attack_steps: int


PLAIN = "network.positions=false"  # the paper's networks have no positions
FULL = Scale((PLAIN, "network.width=192"), 12, 10, 20, 10_000, 1_000, AttackSettings.steps)
# To rehearse on a CPU.
TINY = Scale((PLAIN, "network.width=4", "training.batch_size=20"), 0.005, 0.005, 2, 20, 2, 2)


@dataclass(frozen=True)
class Bench:
    """Where a sweep finds and leaves its files."""

    scale: Scale
    results: Path
    work: Path  # run folders and rows that are not complete
    data_dir: Path | None = None


def matching(patterns: list[str]) -> list[SweepRun]:
    """The matching runs, the longest first, so that no process is left with a long run at the end."""
    known: list[SweepRun] = [*sorted(SWEEP, key=lambda model: -model.receptive_field), *SCORE_RUNS]
    for pattern in patterns:
        if not any(fnmatchcase(run.name, pattern) for run in known):
            raise unknown_name("run", pattern, [run.name for run in known])
    return [run for run in known if any(fnmatchcase(run.name, pattern) for pattern in patterns)]


def is_done(run: SweepRun, results: Path) -> bool:
    if isinstance(run, ScoreRun):
        return score_curve(results, run).exists()
    return sweep_rows(results, run).exists() and sweep_attack(results, run).exists()


def carry_out(run: SweepRun, bench: Bench) -> str:
    """Do what is left of a run; returns its numbers in words."""
    words = carry_out_score_run(run, bench) if isinstance(run, ScoreRun) else carry_out_model(run, bench)
    return f"{run.name}: {words}"


def recipe_of(run: SweepRun, scale: Scale) -> Recipe:
    """`fast-cifar10`, smaller and shorter."""
    if isinstance(run, ScoreRun):
        epochs = scale.score_epochs
        own = [f"network.step={run.step}", f"evaluation.times={scale.score_points}"]
    else:
        epochs = scale.model_epochs
        own = [f"network.kernels={list(CIFAR_KERNELS[run.receptive_field])}", f"loss.margin={run.margin}"]
        own.append("evaluation.times=1")
    length = [f"schedule.epochs={epochs}", f"schedule.warmup_epochs={epochs / 10}"]
    return load_recipe("fast-cifar10", [*scale.settings, *own, *length])


def carry_out_model(model: SweepModel, bench: Bench) -> str:
    """Train on all training images (nothing is chosen by these runs), certify, attack."""
    scale, folder = bench.scale, bench.work / model.name
    train_quietly(recipe_of(model, scale), RunOptions(folder, bench.data_dir, final=True, resume=True))
    subject = Subject.find(folder, model.name, bench.data_dir)
    rows = subject.certify(SWEEP_EVALUATIONS, scale.certified, folder, sweep_rows(bench.results, model))
    main = Evaluation(MAIN_PATCH, "every-region")
    settings = AttackSettings(steps=scale.attack_steps)
    attacked = subject.attack(main, scale.attacked, settings, folder, sweep_attack(bench.results, model))
    shares = rows.accuracies(main)
    return f"clean {shares.clean:.2%}, certified {shares.certified:.2%}, attacked {attacked.attacked_accuracy:.2%}"


def carry_out_score_run(run: ScoreRun, bench: Bench) -> str:
    """Train with the validation images held out, and keep the accuracies on them; a collapse is a result too."""
    recipe, folder = recipe_of(run, bench.scale), bench.work / run.name
    try:
        train_quietly(recipe, RunOptions(folder, bench.data_dir, seed=run.seed, resume=True))
        collapsed = False
    except Diverged:
        collapsed = True
    images = len(load_dataset(recipe.data.name, bench.data_dir).split("train"))
    header = {"kind": "training", "recipe": recipe.table(), "seed": run.seed, "versions": versions()}
    header |= {"steps_per_epoch": images // recipe.training.batch_size, "collapsed": collapsed}
    points = [line for line in read_log(folder) if "certified" in line]
    path = score_curve(bench.results, run)
    write_atomically(path, "".join(json.dumps(line) + "\n" for line in [header, *points]).encode())
    if collapsed:
        return "collapsed"
    curve = read_curve(path)
    return f"clean {curve.clean[-1]:.2%}, certified {curve.certified[-1]:.2%} of the validation images"
