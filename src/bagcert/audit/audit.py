"""The audit: every check, the guard bands that cover what was seen, and the setting that cures a violation."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from bagcert.audit.checks import Check, Difference, behavior
from bagcert.audit.patches import Painted, adversarial, painted
from bagcert.audit.programs import prepare
from bagcert.audit.structure import structural_problems
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.onnx.guard import GuardBand
from bagcert.program import Program
from bagcert.scorers.steps import HeavisideStep, ScoreStep
from bagcert.shapes import Images

NO_CURE = "none of the settings tried; a layer of the network leaks, or this machine's arithmetic is not fit for proofs"


@dataclass(frozen=True)
class Audit:
    """What an audit found. The guard bands cover every difference seen: inside this program, and to eager torch."""

    program: Program
    checks: list[Check]
    inside: GuardBand
    to_torch: GuardBand
    cure: str | None  # of a violation; None where there is none

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)


def audit(
    defense: Defense, images: Images, program: Program, after_check: Callable[[str], None] = lambda name: None
) -> Audit:
    """Try a program on some clean images; `after_check` is told of each check that is done."""
    scorer, channels = defense.scorer, images.shape[1]
    structure = Check(
        "structure", "eval mode, no layer mixes positions", problems=tuple(structural_problems(scorer, channels))
    )
    after_check(structure.name)
    try:
        run = prepare(program, scorer, channels)
    except UsageError:
        if structure.passed:
            raise
        return Audit(program, [structure], GuardBand(), GuardBand(), structure.problems[0])  # it cannot even be built
    logits = run(images)
    if tuple(logits.shape[2:]) != scorer.footprint.grid:
        raise UsageError(
            "expected a scorer of regions, whose logits are its score map, got one of other views; "
            "attack it instead: bagcert attack"
        )
    patches = list(painted(defense, images))
    attacks = list(adversarial(defense, images)) if structure.passed else []
    checks = [structure]
    for check in behavior(run, images, patches, attacks):
        checks.append(check)
        after_check(check.name)
    usual = Program(device=program.device, batch=defense.batch_size)
    apart = Difference() if program == usual else Difference.between(logits, prepare(usual, scorer, channels)(images))
    seen = sum((check.found for check in checks), Difference()).largest
    return Audit(
        program,
        checks,
        band(scorer.step, seen),
        band(scorer.step, max(seen, apart.largest)),
        cure(defense, images, program, checks, patches, attacks),
    )


def band(step: ScoreStep, largest: float) -> GuardBand:
    """The smallest guard band that covers logits which are off by so much.

    A vote can flip only where the logit is no further from 0 than it moved. Rounding to the grid adds at most what
    rounding up does; no score step stretches differences.
    """
    if not math.isfinite(largest):
        raise UsageError("expected finite scores, got NaN or infinity; check the network's output")
    if isinstance(step, HeavisideStep):
        return GuardBand(uncertain=rounded_up(largest))
    return GuardBand(slack=math.ceil(largest * step.unit))


def rounded_up(value: float) -> float:
    """To two digits, never down: what is printed is what covers."""
    if not value:
        return 0.0
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / digit) * digit:.1e}")


def cure(
    defense: Defense,
    images: Images,
    program: Program,
    checks: list[Check],
    patches: list[Painted],
    attacks: list[Painted],
) -> str | None:
    """The first setting under which every check passes."""
    if all(check.passed for check in checks):
        return None
    structure = checks[0]
    if not structure.passed:
        return structure.problems[0]
    for candidate in program.candidates():
        run = prepare(candidate, defense.scorer, images.shape[1])
        if all(check.passed for check in behavior(run, images, patches, attacks)):
            return f"use {candidate}"
    return NO_CURE
