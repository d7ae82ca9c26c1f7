"""Patch attacks: the other bound. No attack may change what is certified; it should change what it can of the rest."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bagcert.attacks.descent import Clean, Descent, Runs
from bagcert.attacks.goals import Aim, goal_for, need_goal
from bagcert.attacks.placements import Placements, companions, first_where_steep, paper_leads, weakest_placements
from bagcert.attacks.settings import Attackable, AttackSettings
from bagcert.attacks.windows import Windows, window_size
from bagcert.errors import UsageError
from bagcert.program import at_once
from bagcert.rules import Certificate, IntegerScores
from bagcert.tensors import Images, Labels, Scores

# Pixels of all windows run at once; on a GPU the gradients of the paper's network of width 768 then take about 16 GB.
PIXELS_AT_ONCE = {"cpu": 2**13, "cuda": 2**16}
MOST_PLACES = 2**12  # to choose from, if many reach the same scores
LEADS_AT_ONCE = 2**25  # of classes at placements


@dataclass(frozen=True, eq=False)
class Attacked:
    """What came of an attack.

    `images` are attacked where `placement` is not -1, and the caller's own elsewhere; `attacked` is the rule's own
    prediction for them. `runs` counts the descents: one per image, placement and restart tried.
    """

    images: Images
    certificate: Certificate  # of the clean images
    attacked: Tensor  # int64 [b]
    placement: Tensor  # int64 [b 4]: row, column, height, width in pixels; of the first of several patches
    others: Tensor  # int64 [b m 4]: of the others
    runs: int

    def __repr__(self) -> str:
        changed = int((self.attacked != self.certificate.predicted).sum())
        counts = f"{len(self.certificate)} images, {int(self.certificate.certified.sum())} certified"
        return f"Attacked({counts}, {changed} changed, of these {int(self.unsound.sum())} certified)"

    @property
    def unsound(self) -> Tensor:
        """Certified or detectable images that an attack succeeded on, bool [b]: there must be none."""
        return protected(self.certificate) & (self.attacked != self.certificate.predicted)


def protected(certificate: Certificate) -> Tensor:
    """The images that no attack may succeed on, bool [b]."""
    certified, detectable = certificate.certified, certificate.detectable
    return certified if detectable is None else certified | detectable


def attack(
    defense: Attackable,
    images: Images,
    labels: Labels | Sequence[int] | None = None,
    settings: AttackSettings | None = None,
) -> Attacked:
    """Attack each image away from its predicted class, at the weakest placements first, until an attempt succeeds.

    Images that are wrong already, by `labels` or by an alert, are left alone, unless something is proven about them: a
    wrong answer may not change either.
    """
    need_goal(defense.rule)
    wanted = settings or AttackSettings()
    if not isinstance(wanted, AttackSettings):
        raise UsageError(f"Settings must be AttackSettings, but are {wanted!r:.40}. Write AttackSettings(steps=100).")
    device = next(defense.scorer.parameters()).device
    scores = defense.scores(images)
    images = images.to(device, torch.float32)
    certificate = defense.certify_integers(scores)
    chosen = torch.ones_like(certificate.certified)
    if labels is not None:
        right = certificate.predicted == read_labels(labels, scores).to(device)
        if certificate.alert is not None:
            right &= ~certificate.alert
        chosen = right | protected(certificate)
    soft = soft_scores(defense, images)
    clean = Clean(images, soft, scores.values, certificate.predicted, certificate.certified)
    regions = defense.scorer.footprint.regions(defense.threat).maximal().to(device)
    every = wanted.sweep or defense.scorer.alike
    placements = Placements.of(defense.threat, defense.scorer.footprint, every).to(device)
    if not wanted.sweep:
        placements = placements.thinned(MOST_PLACES)
    descent = Descent(defense, wanted, clean, regions)
    ranking = Ranking(defense, wanted, placements, scores, clean, certificate)
    attempts = ranking.attempts().of(chosen.nonzero().flatten())
    runs = try_all(descent, attempts, placements)
    found = descent.flips
    where = torch.where(found.place[..., None] >= 0, placements.regions.placements[found.place.clamp(min=0)], -1)
    return Attacked(found.images, certificate, found.attacked, where[:, 0], where[:, 1:], runs)


def read_labels(labels: Labels | Sequence[int], scores: IntegerScores) -> Labels:
    """The labels of images with these scores, int64 [b]; refused unless each is the number of a class.

    No prediction equals a label that is no class, so such an image would count as wrong and be left alone.
    """
    count, classes = scores.values.shape[:2]
    try:
        read = torch.as_tensor(labels)
    except (RuntimeError, TypeError, ValueError) as error:
        raise UsageError(
            f"Labels must be class numbers, but are {type(labels).__name__}. Give one per image."
        ) from error
    if read.shape != (count,):
        raise UsageError(f"Give one label for each of {count} images; these have the shape {list(read.shape)}.")
    if read.is_floating_point() or read.is_complex() or read.dtype == torch.bool:
        raise UsageError(f"Labels must be whole numbers, but are {read.dtype}. Convert them by labels.long().")
    least, most = int(read.min()), int(read.max())
    if least < 0 or most >= classes:
        raise UsageError(
            f"Labels must lie in 0..{classes - 1}, but these are in {least}..{most}. "
            "Number the classes as the network does, from 0."
        )
    return read.long()


def together(defense: Attackable) -> int:
    """How many images to differentiate at once: 64, or fewer if each takes many passes."""
    height, width = defense.scorer.footprint.image_size
    return max(1, min(64, 2**22 // (defense.scorer.passes * height * width)))


@torch.no_grad()
def soft_scores(defense: Attackable, images: Images) -> Scores:
    """What the goals see of the clean images."""
    parts = images.split(together(defense))  # type: ignore[no-untyped-call]
    return torch.cat([defense.scorer(part.contiguous(memory_format=torch.channels_last)) for part in parts])


def lead_slopes(defense: Attackable, images: Images, predicted: Tensor) -> Images:
    """How the predicted class's lead over all others changes with each pixel."""
    pixels = images.detach().requires_grad_()
    lead = Aim(predicted, None).lead(defense.scorer(pixels).mean(dim=(2, 3)))
    (slopes,) = torch.autograd.grad(lead.sum(), pixels)
    return slopes


def gains(defense: Attackable, clean: Clean, placements: Placements) -> Tensor:
    """How much each placement can lower the predicted class's lead, by the slope at the clean image: [b n]."""
    parts, size = [], together(defense)
    for images, predicted in zip(clean.images.split(size), clean.predicted.split(size), strict=True):  # type: ignore[no-untyped-call]
        slope = lead_slopes(defense, images, predicted)
        most = torch.where(slope > 0, slope * images, slope * (images - 1)).sum(dim=1)  # down to black or up to white
        parts.append(placements.sums(most))
    return torch.cat(parts)


@dataclass(frozen=True, eq=False)
class Ranking:
    """What decides the order of attacks: the clean images with their scores and proofs, and the placements."""

    defense: Attackable
    settings: AttackSettings
    placements: Placements
    scores: IntegerScores
    clean: Clean
    certificate: Certificate

    def weakest(self) -> Iterator[tuple[Tensor, Tensor]]:
        """For some images at a time, their weakest placements and the rivals there."""
        assert self.certificate.weakest_class is not None
        regions, scorer = self.placements.regions, self.defense.scorer
        steep = gains(self.defense, self.clean, self.placements) if scorer.alike else None
        size = max(1, LEADS_AT_ONCE // (self.scores.values.shape[1] * len(regions)))
        for start in range(0, len(self.certificate), size):
            part = slice(start, start + size)
            some, predicted = self.scores.part(part), self.certificate.predicted[part]
            if self.settings.paper_place:
                leads = paper_leads(some, predicted, regions)
            else:
                leads = self.defense.rule.leads(some, predicted, regions, self.certificate.weakest_class[part])
            if steep is not None:
                leads = first_where_steep(leads, steep[part])
            yield weakest_placements(leads, leads.shape[2] if self.settings.sweep else self.settings.places)

    def attempts(self) -> "Attempts":
        """Every image of the batch, restart after restart, each from the weakest placement on."""
        place, rival = (torch.cat(parts) for parts in zip(*self.weakest(), strict=True))
        count, ranks = place.shape
        places = companions(self.scores, self.certificate.predicted, rival, place, self.placements.regions)
        image = torch.arange(count, device=place.device).repeat(ranks)
        restarts = self.settings.restarts
        restart = torch.arange(restarts, device=place.device).repeat_interleave(count * ranks)
        together = places.transpose(0, 1).flatten(0, 1).repeat(restarts, 1)
        return Attempts(image.repeat(restarts), together, rival.T.flatten().repeat(restarts), restart)


@dataclass(frozen=True, eq=False)
class Attempts:
    """Attacks in the order they are tried: all images at their weakest placement first."""

    image: Tensor  # int64 [n]
    place: Tensor  # int64 [n m]: m patches at once
    rival: Tensor
    restart: Tensor

    def select(self, kept: Tensor) -> "Attempts":
        return Attempts(self.image[kept], self.place[kept], self.rival[kept], self.restart[kept])

    def of(self, images: Tensor) -> "Attempts":
        return self.select(torch.isin(self.image, images))


def try_all(descent: Descent, attempts: Attempts, placements: Placements) -> int:
    """Run them in pieces, without those of images that have flipped already; returns the number of runs."""
    generator = torch.Generator().manual_seed(descent.settings.seed)
    pixels = at_once(PIXELS_AT_ONCE, attempts.image.device)
    runs = 0
    while len(attempts.image):
        sizes = placements.sizes(attempts.place, descent.defense.scorer.footprint.image_size)
        same = (sizes == sizes[0]).all(dim=1)  # windows of one size
        height, width = window_size(descent.defense.scorer, (int(sizes[0, 0]), int(sizes[0, 1])))
        count = max(1, pixels // (height * width))
        taken = same & (same.cumsum(dim=0) <= count)
        now = attempts.select(taken)
        start(descent, now, placements, generator)
        runs += len(now.image)
        attempts = attempts.select(~taken)
        attempts = attempts.select(~descent.flips.of(attempts.image))
    return runs


def start(descent: Descent, attempts: Attempts, placements: Placements, generator: torch.Generator) -> None:
    """Run attacks whose patches have one size."""
    scorer, clean = descent.defense.scorer, descent.clean
    windows = Windows.around(scorer, *placements.together(attempts.place, scorer.footprint.image_size))
    target = attempts.rival if descent.settings.fixed_target else None
    aim = Aim(clean.predicted[attempts.image], target, scorer.step.unit)
    goal = goal_for(descent.defense.rule, aim, descent.regions)
    pixels = windows.cut(clean.images[attempts.image])
    noise = torch.rand(pixels.shape, generator=generator).to(pixels.device)
    random = windows.painted & (attempts.restart > 0)[:, None, None, None]
    descent.descend(Runs(attempts.image, attempts.place, windows, goal), torch.where(random, noise, pixels))
