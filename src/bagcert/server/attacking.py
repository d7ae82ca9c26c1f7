"""One patch against one picture, where its proof is weakest: for the visitor to look at, whether it wins or not."""

from dataclasses import dataclass

import torch

from bagcert.attacks.attack import soft_scores
from bagcert.attacks.goals import Aim, goal_for
from bagcert.attacks.placements import Placements
from bagcert.attacks.windows import Windows
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.pictures import Pixels
from bagcert.rules import read_scores
from bagcert.server.limits import Limits
from bagcert.server.model import Model, facing, to_images
from bagcert.tensors import Scores
from bagcert.threats import Threat, parse_threat
from bagcert.threats.threat import Placement

STEP = 12  # of 255 levels: twice that of App. A.2, since steps are few; whole levels, so that 8 bits hold the patch


@dataclass(frozen=True, eq=False)
class AttackJob:
    """What to attack, with patches of which sizes, and for at most how many steps."""

    pixels: Pixels
    patch: Threat
    steps: int


@dataclass(frozen=True, eq=False)
class AttackResult:
    """The picture with the patch, in 8 bits. `proven` means that no patch of that size can change the class."""

    pixels: Pixels
    placement: Placement
    proven: bool
    steps: int


def parse_patch(patch: str | Threat, served: Defense, limits: Limits) -> Threat:
    """The patch to attack with. A rule's masks prove nothing about patches larger than those it was built for."""
    threat = parse_threat(patch, served.threat.image_size)
    count, most = len(threat.shapes), limits.attack_shapes
    if not count:
        raise UsageError(f"Only rectangles that may lie anywhere can be shown, not {threat}. Choose one like 2x2.")
    if count > most and str(threat) != str(served.threat):
        raise UsageError(f"A patch may have at most {most} shapes, but this one has {count}. Attack with fewer.")
    try:
        facing(served, threat)
    except UsageError:
        raise UsageError(
            f"The patch {threat} does not fit into the served {served.threat}, for which rule '{served.rule.name}' "
            "has its masks. Choose a smaller one."
        ) from None
    return threat


def attack_picture(model: Model, job: AttackJob) -> AttackResult:
    """Projected gradient descent as in `bagcert.attacks`, which keep a patch only if it wins; this returns any."""
    defense = facing(model.defense, job.patch)
    image = to_images([job.pixels])
    scores = model.scores(image)
    certificate = defense.certify_integers(scores)
    assert certificate.weakest_region is not None
    weakest = certificate.weakest_region
    placements = Placements.of(job.patch, defense.scorer.footprint, every=True)
    index = (placements.regions.placements == weakest).all(dim=1).nonzero().flatten()[:1]
    windows = Windows.around(
        defense.scorer, placements.pixels(index, job.patch.image_size), placements.regions.masks(index), weakest
    )
    goal = goal_for(defense.rule, Aim(certificate.predicted, None, defense.scorer.step.unit), defense.regions)
    soft_clean, pixels, only = soft_scores(defense, image), windows.cut(image), torch.zeros(1, dtype=torch.int64)
    taken = 0
    while taken < job.steps:
        pixels = pixels.detach().requires_grad_()
        logits = windows.logits(defense.scorer, pixels)
        soft = windows.splice(defense.scorer.step.soft(logits), soft_clean)
        if taken % goal.every == 0:
            hard = windows.splice(defense.scorer.step.fixed(logits.detach()), scores.values)
            if fooled(defense, hard, soft.detach(), int(certificate.predicted)):
                break
            goal = goal.refreshed(soft.detach(), only)
        (slope,) = torch.autograd.grad(goal.losses(soft).sum(), pixels)
        moved = (pixels.detach() - STEP / 255 * slope.sign()).clamp(0, 1)
        pixels = torch.where(windows.painted, (moved * 255).round() / 255, pixels.detach())
        taken += 1
    painted = (windows.paste(pixels.detach(), image)[0].permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
    return AttackResult(painted, Placement(*weakest[0].tolist()), bool(certificate.certified), taken)


def fooled(defense: Defense, hard: Scores, soft: Scores, predicted: int) -> bool:
    """Whether the class is another one, without an alert, as far as the window shows it.

    Scores of views that hide something cannot be put together from the window.
    """
    if defense.scorer.views:
        return int(soft.mean(dim=(2, 3)).argmax()) != predicted
    found = defense.certify_integers(read_scores(hard, defense.scorer.step.bounds), exact=False)
    return int(found.predicted) != predicted and not (found.alert is not None and bool(found.alert))
