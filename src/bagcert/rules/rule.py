"""A rule is an inference and the certificate proved for it; the two are never mixed."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, final

import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.program import at_once
from bagcert.rules.certificate import Certificate
from bagcert.rules.scores import IntegerScores
from bagcert.threats import Regions

# Scores or (class, region) pairs held at a time. On a CPU they fit into its cache: 4x faster than 2**23 (two cores).
CHUNK_CELLS = {"cpu": 2**18, "cuda": 2**25}


class Rule(ABC):
    """How scores become a class, and what that can prove.

    `regions` are those of the threat. A placement whose region lies inside another region can do no more than the
    larger one, so the maximal regions suffice (`Regions.maximal`), and callers pass only those.

    A rule says here what other parts need to know of it; none of them asks which rule it is. What only some parts can
    do with a rule stands in a table there, by the rule's name: the goal of an attack (`bagcert.attacks.goals`), the
    ONNX graph (`bagcert.onnx.rule_graphs`), the second opinion (`bagcert.rows.verify.conditions`).
    """

    name: ClassVar[str]
    asks: ClassVar[tuple[str, str] | None] = None  # what its name alone leaves open: in words, and as an argument
    needs_views: ClassVar[bool] = False  # takes scores of views whose scorer promises that unanimous ones agree
    patches: ClassVar[int] = 1  # at once, about which it can prove something
    nested: ClassVar[bool] = True  # of exact scores: what it certifies a threat for, it does for every threat inside
    detects: ClassVar[bool] = False  # promises the class or an alert, not the class itself
    built: bool = True  # false of a masking rule without masks
    alert_above: int | None = None  # the lead of another class that raises an alert, in score units; None: no alerts

    @property
    def written(self) -> str:
        """As commands and rows write it: its name, with the threshold of its alerts unless that is the usual one."""
        usual = self.alert_above == type(self).alert_above
        return self.name if usual else f"{self.name}:{self.alert_above}"

    def alerting(self, above: int) -> "Rule":
        """The rule with alerts at this threshold."""
        raise UsageError(f"Rule '{self.name}' raises no alerts. Use detect or two-mask.")

    def proven(self, certificate: Certificate) -> Tensor:
        """Does what this rule promises hold for each image? Bool [b]."""
        return certificate.certified

    @final
    @torch.no_grad()
    def predict(self, scores: IntegerScores, regions: Regions) -> Tensor:
        """The class of each image, int64 [b]. Ties go to the lowest class index."""
        regions = self._fitting(scores, regions)
        return torch.cat([self._predict(part, regions) for part in self._parts(scores, regions)])

    @final
    @torch.no_grad()
    def certify(self, scores: IntegerScores, regions: Regions, exact: bool = True) -> Certificate:
        """The class of each image and its certificate; `exact=False` may leave out the lead and the weakest regions."""
        regions = self._fitting(scores, regions)
        many = len(scores.values) > 0 and scores.values.shape[1] > FEW and regions.count == 1
        needed = self._needed(scores, regions, exact) if many else None
        if needed is None:
            return self._certify_parts(scores, regions, exact)
        order, found = [], []
        for images, classes in alike(needed):
            order.append(images)
            few = scores.part((images[:, None], classes))
            found.append(self._certify_parts(few, regions, exact).named(classes))
        return Certificate.concatenate(found).picked(torch.cat(order).argsort())

    def _certify_parts(self, scores: IntegerScores, regions: Regions, exact: bool) -> Certificate:
        return Certificate.concatenate([self._certify(part, regions, exact) for part in self._parts(scores, regions)])

    def _needed(self, scores: IntegerScores, regions: Regions, exact: bool) -> Tensor | None:
        """Bool [b k]: the classes that can influence the certificate of each image; None: all of them.

        Asked for one patch only: what a class can reach by several is not bounded by its sum outside one region.
        """
        return None

    def built_for(self, regions: Regions) -> "Rule":
        """The rule with masks for these regions; itself if it has no masks, or has some already."""
        return self

    def unbuilt(self) -> "Rule":
        """The rule without the masks that it was built with; itself if it has none."""
        return self

    def masks_for(self, regions: Regions) -> Regions:
        """What the inference takes away when the threat has these regions: its own masks, or the regions."""
        return regions

    def covers(self, regions: Regions) -> bool:
        """Can it say anything of a threat with these regions? A masking rule cannot beyond its masks."""
        return True

    def need_cover(self, regions: Regions) -> None:  # noqa: B027 (without masks nothing has to be covered)
        """Refuse regions that the rule does not cover."""

    def need_patches(self, regions: Regions) -> None:
        """Refuse regions of more patches at once than the rule can prove something about."""
        count = max(regions.count, self.masks_for(regions).count)
        if count > self.patches:
            raise UsageError(
                f"Rule '{self.name}' proves nothing about {count} patches at once. "
                "Use 'every-region', or a threat of fewer patches."
            )

    def need_views(self, promised: bool) -> None:
        """Refuse scores that promise no agreement of unanimous views, if the proof takes it for granted."""
        if self.needs_views and not promised:
            raise UsageError(
                f"Rule '{self.name}' needs a network of views, but these scores promise no agreement. Use another rule."
            )

    def leads(self, scores: IntegerScores, classes: Tensor, regions: Regions, rival: Tensor | None = None) -> Tensor:
        """What each placement leaves of the proof of each image's class over every rival, [b k n].

        The less, the better a place to attack. The class's own entries are out of the way (`rivals_only`); if one
        `rival` of each image is given, those of the others may be too.
        """
        raise UsageError(f"Rule '{self.name}' does not say what each placement leaves of its proof. Define its leads.")

    def least_leads(self, scores: IntegerScores, classes: Tensor, regions: Regions) -> Tensor:
        """The least lead of each image's class over every rival, wherever the patch sits: [b k]."""
        return self.leads(scores, classes, regions).amin(dim=2)

    @abstractmethod
    def _predict(self, scores: IntegerScores, regions: Regions) -> Tensor: ...

    @abstractmethod
    def _certify(self, scores: IntegerScores, regions: Regions, exact: bool) -> Certificate: ...

    def _fitting(self, scores: IntegerScores, regions: Regions) -> Regions:
        grid = tuple(scores.values.shape[2:])
        if grid != regions.grid:
            raise UsageError(
                f"The scores lie on a {grid[0]}x{grid[1]} grid, but the regions on a "
                f"{regions.grid[0]}x{regions.grid[1]} grid. "
                "Give the footprint of the network that made the scores."
            )
        self.need_patches(regions)
        return regions.to(scores.values.device)

    def _parts(self, scores: IntegerScores, regions: Regions) -> list[IntegerScores]:
        """The images in pieces that fit into memory; at least one piece, so an empty batch gives an empty result."""
        count, classes, rows, columns = scores.values.shape
        cells = at_once(CHUNK_CELLS, scores.values.device)
        size = max(1, cells // (classes * max(len(regions), rows * columns)))
        return [scores.part(slice(start, start + size)) for start in range(0, max(count, 1), size)]


def rivals_only(leads: Tensor, classes: Tensor) -> Tensor:
    """Leads [b k ...], in place, with the class's own entry set to the maximum: it is no rival of itself."""
    leads[torch.arange(len(leads), device=leads.device), classes] = torch.iinfo(leads.dtype).max
    return leads


def weakest(leads: Tensor, predicted: Tensor, regions: Regions) -> Certificate:
    """The certificate from the leads over every rival in every region, [b k n]; the leads are overwritten."""
    lead, place = rivals_only(leads, predicted).flatten(1).min(dim=1)
    return Certificate(
        predicted,
        certified=lead > 0,
        lead=lead.long(),
        weakest_region=regions.placements[place % leads.shape[2]],
        weakest_class=place // leads.shape[2],
    )


FEW = 16  # classes; with so few, finding out which of them matter costs more than it saves


def alike(needed: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Groups of images [g] that need about as many classes, with the classes of each, int64 [g m], ascending.

    `needed` is bool [b k]. Images that need 5 to 8 classes form one group, for example, so that one hard image does not
    slow down all the others. An image that needs fewer than its group is filled up with other classes: an extra class
    changes no answer.
    """
    counts = needed.sum(dim=1)
    sizes = counts.log2().ceil()
    for size in sizes.unique():  # type: ignore[no-untyped-call]
        images = (sizes == size).nonzero().flatten()
        first = needed[images].int().argsort(descending=True)
        yield images, first[:, : int(counts[images].max())].sort().values
