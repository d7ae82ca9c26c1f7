"""The audit: all checks, the guard bands that cover the differences found, and the setting that cures a violation."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from bagcert.audit.backends import prepare
from bagcert.audit.checks import Check, Difference, behavior
from bagcert.audit.patches import Painted, adversarial, painted
from bagcert.audit.structure import structural_problems
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.onnx.guard import GuardBand
from bagcert.program import Program
from bagcert.scorers.steps import IN_LOGITS, ScoreStep
from bagcert.tensors import Images

NO_CURE = "none of the settings tried; a layer of the network leaks, or this machine's arithmetic is not fit for proofs"


@dataclass(frozen=True)
class Audit:
    """What an audit found. The guard bands cover every difference within this program, and to eager torch."""

    program: Program
    checks: list[Check]
    inside: GuardBand
    to_torch: GuardBand
    cure: str | None  # of a violation; None if there is none

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)


def audit(
    defense: Defense, images: Images, program: Program, after_check: Callable[[str], None] = lambda name: None
) -> Audit:
    """Audit a program on some clean images. `after_check` is called with the name of each finished check."""
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
        return Audit(program, [structure], GuardBand(), GuardBand(), structure.problems[0])  # it cannot be built at all
    logits = run(images)
    if tuple(logits.shape[2:]) != scorer.footprint.grid:
        raise UsageError(
            "Only a scorer whose logits are its score map can be audited, but this one scores other views. "
            "Attack it instead: bagcert attack."
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
    """The smallest guard band that covers logits that are off by at most `largest`.

    A vote can flip only if its logit moved at least as far as its distance from 0. Scores on the fixed-point grid
    differ by at most the difference in units, rounded up, since no score step stretches differences.
    """
    if not math.isfinite(largest):
        raise UsageError("The scores contain NaN or infinity. Check the network's output.")
    if step.band == IN_LOGITS:
        return GuardBand(uncertain=rounded_up(largest))
    return GuardBand(slack=math.ceil(largest * step.unit))


def rounded_up(value: float) -> float:
    """To two digits, never down, so that the printed band covers the differences."""
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
