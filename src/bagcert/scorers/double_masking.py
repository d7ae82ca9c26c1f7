"""Double masking (PatchCleanser, Xiang et al. 2022): a classifier of whole images, asked under masks and pairs of
them."""

import copy
from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from bagcert.scorers.base import MASKED, Need
from bagcert.scorers.steps import OneMaskStep
from bagcert.scorers.views import Hidden, HidingScorer
from bagcert.tensors import Images, Scores
from bagcert.threats import Threat

SECONDS = 6  # second masks that a first one is asked with before it may be dropped


class DoubleMasking(HidingScorer):
    """Every patch lies inside a mask; what the classifier says under that mask, no patch behind it can change.

    The masks. The proofs below ask one thing of them: each placement lies wholly inside at least one. They may have any
    form and size, and overlap. Masks that the caller gives are refused unless they do that (`HiddenSets.need`). The
    usual ones are rectangles. Of a patch of p pixels on an axis of s pixels, intervals of p + d - 1 pixels from every
    d-th pixel on, the last one at the end of the axis, hold every placement: one that starts at a lies inside the
    interval that starts at the largest multiple of d up to a, which ends no earlier than a + p - 1, or inside the last
    one. With at most k intervals, d = ⌈(s - p + 1) / k⌉ gives the shortest. Masks are their products, k² in all.

    *Recovery*, the rule `unanimous`. Let c(m, m') be the class under the masks m and m'; a masked pixel has the color
    of the fill, whatever it was. View m has one question for each mask m', answered by c(m, m'); the view that hides
    nothing has the single masks, c(m', m').

    Unanimous views agree: if m is unanimous about a and m' about b, then a = c(m, m') = c(m', m) = b; if all single
    masks give b, then a = c(m, m) = b.

    This is PatchCleanser's inference: the class on which all single masks agree; else that of a mask which keeps it
    with every second one; else the majority of the single masks, the lowest class on ties. Its certificate, two-mask
    correctness, asks that all pairs give one class. Ours asks it of the pairs of one mask around each placement, by the
    same proof; so it certifies everything that theirs does. With the usual masks, and a patch of one size anywhere, the
    two are the same: each mask is the only one around some placement.

    *Detection*, the rule `detect`. The score of view m is the logit under m alone, and the last cell is such that all
    cells add up to the logits of the plain image. So the answer is the classifier's own, and an alert is raised if
    under some mask another class leads it by more than t. Outside R(l) lie the views that hide l, and none else: the
    rule's proof is about their logits. With t = 0 an image is detectable exactly if the class under each mask is the
    answer, as in PatchGuard++ and Minority Reports.

    Both ask that the classifier is a function of the image it is shown: the same pixels, the same class, whatever else
    is in the batch. So every pass has `at_once` images, filled up with black ones, and `bagcert audit` compares the
    bits of all single masks under patches, other batches, other orders and repetition.

    Questions that cannot change what is asked for (`Need`) are left out. Then a count may be too low. Only a full count
    makes a view unanimous, so nothing more is ever certified.
    """

    trains: ClassVar[str] = MASKED
    own_batches: ClassVar[bool] = True
    traceable: ClassVar[bool] = False  # positions stay apart because they are masked
    pairs = True  # it counts pairs of masks; else its scores are the logits under single ones
    threat: Threat | None = None
    _hides: Tensor | None = None

    @property
    @abstractmethod
    def at_once(self) -> int:
        """How many masked images each pass takes."""

    @abstractmethod
    def classify(self, images: Images, masks: Tensor) -> Tensor:
        """The logits [n k] of images [n c h w] of which the masks [n h w] hide what they cover."""

    @property
    def views(self) -> bool:  # type: ignore[override]
        return self.pairs

    @property
    def passes(self) -> int:
        return len(self.hidden) * (len(self.hidden) + 1) // 2 if self.pairs else len(self.hidden) + 1

    @property
    def questions(self) -> int:
        return len(self.hidden)

    def hide(self, hidden: Hidden) -> None:
        super().hide(hidden)
        if not self.pairs:
            self.step = OneMaskStep(len(self.hidden))

    def facing(self, threat: Threat, views: bool = True) -> "DoubleMasking":
        if self.threat is not None and self.threat.same(threat) and self.pairs == views:
            return self
        faced = copy.copy(self)
        faced.pairs, faced.threat, faced._hides = views, threat, None
        faced.hide(self.against(threat))
        return faced

    def forward(self, images: Images) -> Scores:
        """The logits; in training those of each image under two random masks, as a map of one entry."""
        if not self.training:
            return self.step.soft(self.logits(images))
        drawn = torch.randint(len(self.hidden), (2, len(images)), device=images.device)
        return self.under(self.hidden.masks(drawn[0]) | self.hidden.masks(drawn[1]), images)

    def under(self, masks: Tensor, images: Images) -> Scores:
        """For a loss: the logits of each image under its own mask [b h w], as a map of one entry."""
        return self.classify(images, masks).float()[:, :, None, None]

    def logits(self, images: Images) -> Tensor:
        """Under each single mask; in the last row of the map, those of the plain image: [b k i+1 j]."""
        table = self._table(images)
        if torch.is_grad_enabled() or torch.compiler.is_exporting():
            count = images.shape[0]  # of a graph, any number
            shown = images[:, None].expand(-1, len(table), -1, -1, -1).flatten(0, 1)
            found = self.classify(shown, table[None].expand(count, -1, -1, -1).flatten(0, 1))
        else:
            image = torch.arange(len(images), device=images.device).repeat_interleave(len(table))
            mask = torch.arange(len(table), device=images.device).repeat(len(images))
            found = torch.cat(list(self._passes(images, table, image, mask, mask)))
        each = found.view(-1, len(table), found.shape[1]).transpose(1, 2)  # b k n+1
        whole = each[..., -1:].expand(-1, -1, self.footprint.grid[1])
        return torch.cat([each[..., :-1], whole], dim=2).view(-1, found.shape[1], *self.footprint.grid)

    def integers(self, images: Images) -> Scores:
        return self.fewer(images, Need.ALL)

    def fewer(self, images: Images, need: Need) -> Scores:
        return self.mapped(self.counts(images, need)) if self.pairs else self.step.fixed(self.logits(images))

    def counts(self, images: Images, need: Need = Need.ALL) -> Tensor:
        answers = Answers(self, images)
        if need is Need.ALL or (need is Need.PROOF and self.threat is None):
            answers.ask_all()
        else:
            predicted = answers.settle_classes()
            if need is Need.PROOF:
                answers.settle_proofs(predicted, self._hiders(images.device))
        return answers.counts(self.config.classes)

    def _passes(self, images: Images, table: Tensor, image: Tensor, one: Tensor, two: Tensor) -> Iterator[Tensor]:
        """The logits of image[q] under the masks one[q] and two[q], pass by pass; every pass has the same size."""
        size = self.at_once
        for part in torch.arange(len(image), device=image.device).split(size):  # type: ignore[no-untyped-call]
            shown = images.new_zeros(size, *images.shape[1:])
            masks = table.new_zeros(size, *table.shape[1:])
            shown[: len(part)] = images[image[part]]
            masks[: len(part)] = table[one[part]] | table[two[part]]
            yield self.classify(shown.contiguous(memory_format=torch.channels_last), masks)[: len(part)]

    def _table(self, images: Images) -> Tensor:
        """What each view hides, bool [n+1 h w]; the last one hides nothing."""
        masks = self.hidden.masks(torch.arange(len(self.hidden), device=images.device))
        return torch.cat([masks, torch.zeros_like(masks[:1])])

    def _hiders(self, device: torch.device) -> Tensor:
        """Float [r n]: 1 where mask n hides all of what reaches the maximal region r."""
        assert self.threat is not None
        if self._hides is None:
            regions = self.footprint.regions(self.threat).maximal()
            self._hides = (~regions.masks()[:, :-1]).flatten(1).float()
        self._hides = self._hides.to(device)
        return self._hides


class Answers:
    """What the classifier says of each image under each pair of masks, as far as it was asked."""

    def __init__(self, scorer: DoubleMasking, images: Images) -> None:
        self.scorer, self.images = scorer, images
        self.table = scorer._table(images)
        self.total = len(self.table) - 1
        self.winners = torch.full((len(images), self.total, self.total), -1, device=images.device)  # -1: not asked
        image, mask = self.winners[:, :, 0].nonzero().unbind(dim=1)
        self.leads = self.ask(image, mask, mask).view(len(images), -1)  # of the winner under each single mask

    @property
    def singles(self) -> Tensor:
        """The class under each single mask, [b n]."""
        return self.winners.diagonal(dim1=1, dim2=2)

    def ask(self, image: Tensor, one: Tensor, two: Tensor) -> Tensor:
        """Ask for the classes of image[q] under one[q] and two[q], and return how far each is ahead of all others."""
        leads = []
        start = 0
        for logits in self.scorer._passes(self.images, self.table, image, one, two):
            part = slice(start, start + len(logits))
            winner = logits.argmax(dim=1)
            self.winners[image[part], one[part], two[part]] = winner
            self.winners[image[part], two[part], one[part]] = winner
            best = logits.topk(2, dim=1).values
            leads.append(best[:, 0] - best[:, 1])
            start += len(logits)
        return torch.cat(leads) if leads else torch.empty(0)

    def ask_new(self, image: Tensor, one: Tensor, two: Tensor) -> None:
        new = self.winners[image, one, two] < 0
        self.ask(image[new], one[new], two[new])

    def ask_all(self) -> None:
        image = torch.arange(len(self.images), device=self.images.device)
        one, two = torch.triu_indices(self.total, self.total, 1, device=self.images.device)
        self.ask(image.repeat_interleave(len(one)), one.repeat(len(image)), two.repeat(len(image)))

    def settle_classes(self) -> Tensor:
        """Ask what the inference asks, and return the class of each image.

        A mask whose class is the majority's cannot change the answer: unanimous or not, the answer is that class,
        unless another mask is unanimous about another one. So only the others are tried, each until one disagrees.
        """
        singles = self.singles.clone()
        majority = self.counts(int(singles.max()) + 1)[:, :, -1].argmax(dim=1)
        image, mask = (singles != majority[:, None]).nonzero().unbind(dim=1)
        for seconds in torch.arange(self.total, device=image.device).split(SECONDS):  # type: ignore[no-untyped-call]
            if not len(image):
                break
            many = len(seconds)
            self.ask_new(image.repeat_interleave(many), mask.repeat_interleave(many), seconds.repeat(len(image)))
            found = self.winners[image[:, None], mask[:, None], seconds]
            kept = (found == singles[image, mask][:, None]).all(dim=1)
            image, mask = image[kept], mask[kept]
        predicted = majority.clone()
        predicted[image] = singles[image, mask]
        return predicted

    def settle_proofs(self, predicted: Tensor, hiders: Tensor) -> None:
        """Ask all pairs of each image, those with the smallest leads first, until it cannot be certified any more.

        A view can be unanimous about the class only while no pair of its mask has another one. If a placement is left
        whose hiders have all lost that, there is no certificate. Hiders of maximal regions suffice: any other placement
        is hidden by the same masks or more.
        """
        one, two = torch.triu_indices(self.total, self.total, 1, device=predicted.device)
        order = (self.leads[:, one] + self.leads[:, two]).argsort(dim=1)
        done = 0
        while done < len(one):
            alive = ((self.winners == predicted[:, None, None]) | (self.winners < 0)).all(dim=2)
            going = (alive.float() @ hiders.T > 0).all(dim=1).nonzero().flatten()
            if not len(going):
                break
            step = max(1, self.scorer.at_once // len(going))
            chosen = order[going, done : done + step]
            image = going[:, None].expand_as(chosen).flatten()
            self.ask_new(image, one[chosen].flatten(), two[chosen].flatten())
            done += step

    def counts(self, classes: int) -> Tensor:
        """How often each view was given each class, [b k n+1]; the last one counts single masks."""
        asked = torch.cat([self.winners, self.singles[:, None]], dim=1) + 1  # class 0 takes those that were not asked
        counts = torch.zeros(*asked.shape[:2], classes + 1, dtype=torch.int32, device=asked.device)
        counts.scatter_add_(2, asked, torch.ones_like(asked, dtype=torch.int32))
        return counts[..., 1:].transpose(1, 2)
