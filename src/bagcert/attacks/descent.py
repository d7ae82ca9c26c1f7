"""Projected gradient descent on the pixels of many patches at once (App. A.2)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bagcert.attacks.goals import Goal
from bagcert.attacks.settings import Attackable, AttackSettings
from bagcert.attacks.windows import Windows
from bagcert.rules import IntegerScores, read_scores
from bagcert.scorers.base import Need
from bagcert.tensors import Images, Scores
from bagcert.threats import Regions


@dataclass(frozen=True, eq=False)
class Clean:
    """The clean images, and what the network and the rule say about them."""

    images: Images
    soft: Scores
    fixed: Scores
    predicted: Tensor
    certified: Tensor


@dataclass(frozen=True, eq=False)
class Runs:
    """n attacks: on which image of the batch, at which placement, in which window, and towards what."""

    image: Tensor  # int64 [n]
    place: Tensor  # int64 [n m]: m patches at once
    windows: Windows
    goal: Goal

    def going_on(self, kept: Tensor, soft: Scores) -> "Runs":
        """The attacks that go on, from the soft scores of all."""
        goal = self.goal.refreshed(soft.detach()[kept], kept)
        return Runs(self.image[kept], self.place[kept], self.windows.select(kept), goal)


class Flips:
    """The attacks that the rule confirmed on whole images, at most one per image."""

    def __init__(self, clean: Clean, patches: int) -> None:
        self.images = clean.images.clone()
        self.attacked = clean.predicted.clone()
        self.place = torch.full_like(clean.predicted, -1)[:, None].repeat(1, patches)

    def of(self, image: Tensor) -> Tensor:
        return self.place[image, 0] >= 0

    def record(self, image: Tensor, place: Tensor, whole: Images, attacked: Tensor) -> None:
        self.images[image], self.attacked[image], self.place[image] = whole, attacked, place


class Descent:
    """Sign steps on the goal's loss, with pixels kept in [0, 1]; at intervals the rule itself is asked.

    An attack is over when the rule gives its image another class and raises no alert. The rule is first asked about the
    map that the window gives; only its answer on the whole attacked image, run like any other image, counts.
    """

    def __init__(self, defense: Attackable, settings: AttackSettings, clean: Clean, regions: Regions) -> None:
        self.defense, self.settings, self.clean, self.regions = defense, settings, clean, regions
        self.flips = Flips(clean, regions.count)

    def descend(self, runs: Runs, pixels: Images) -> None:
        """Run attacks from these windows on to their end."""
        step = self.defense.scorer.step
        for number in range(self.settings.steps + 1):
            pixels = pixels.detach().requires_grad_()
            logits = runs.windows.logits(self.defense.scorer, pixels)
            soft = runs.windows.splice(step.soft(logits), self.clean.soft[runs.image])
            if number % runs.goal.every == 0 or number == self.settings.steps:
                self.ask(runs, pixels.detach(), self.hopeful(runs, logits.detach()))
                kept = (~self.flips.of(runs.image)).nonzero().flatten()
                if number == self.settings.steps or not len(kept):
                    return
                runs, soft = runs.going_on(kept, soft), soft[kept]
            else:
                kept = torch.arange(len(pixels), device=pixels.device)
            (slope,) = torch.autograd.grad(runs.goal.losses(soft).sum(), pixels)
            before = pixels.detach()[kept]
            moved = (before - self.settings.step_size * slope[kept].sign()).clamp(0, 1)
            pixels = torch.where(runs.windows.painted, moved, before)

    def hopeful(self, runs: Runs, logits: Tensor) -> Tensor:
        """Which attacks may have changed the class, bool [n]."""
        scorer, predicted = self.defense.scorer, self.clean.predicted[runs.image]
        if scorer.views:  # its scores do not come from these logits, and cost many passes
            # While all of these give the class, the view that hides nothing is unanimous about it.
            return (logits.argmax(dim=1) != predicted[:, None, None]).flatten(1).any(dim=1)
        hard = runs.windows.splice(scorer.step.fixed(logits), self.clean.fixed[runs.image])
        return self.fooled(read_scores(hard, scorer.step.bounds), runs.image)[1]

    def fooled(self, scores: IntegerScores, image: Tensor) -> tuple[Tensor, Tensor]:
        """The class of each attacked image, and whether it is another one without an alert: int64 and bool [n].

        A certified class may not change at all: there an alert is no excuse.
        """
        rule, predicted = self.defense.rule, self.clean.predicted[image]
        if rule.alert_above is None:
            attacked = rule.predict(scores, self.regions)
            return attacked, attacked != predicted
        found = rule.certify(scores, self.regions, exact=False)
        assert found.alert is not None
        return found.predicted, (found.predicted != predicted) & (~found.alert | self.clean.certified[image])

    def ask(self, runs: Runs, pixels: Images, hopeful: Tensor) -> None:
        """Record the attacks that change the class of their whole image."""
        index = hopeful.nonzero().flatten()
        if not len(index):
            return
        image = runs.image[index]
        whole = runs.windows.select(index).paste(pixels[index], self.clean.images[image])
        attacked, done = self.fooled(self.defense.scores(whole, Need.CLASS), image)
        self.flips.record(image[done], runs.place[index][done], whole[done], attacked[done])
