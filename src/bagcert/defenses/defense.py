"""A network, a rule and a threat: what predicts, and what it can prove."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from bagcert.attacks import Attacked, AttackSettings, attack
from bagcert.errors import UsageError
from bagcert.rules import Certificate, IntegerScores, Masked, Rule, TwoMask, find_rule, read_scores
from bagcert.scorers.base import Scorer
from bagcert.shapes import Images, Labels
from bagcert.threats import Regions, Threat, parse_threat

BATCH = 64  # images scored at a time: memory stays bounded whatever the caller passes


@dataclass(frozen=True, eq=False)
class Defense:
    """A classifier whose rule is built for one threat; predictions and certificates use the same masks."""

    scorer: Scorer
    rule: Rule  # masks, where it has any, are those of `threat`
    threat: Threat
    classes: tuple[str, ...]

    @staticmethod
    def build(scorer: Scorer, rule: str | Rule, patch: str | Threat | Tensor, classes: tuple[str, ...]) -> "Defense":
        """Build the rule for the threat."""
        threat = parse_threat(patch, scorer.footprint.image_size)
        found = find_rule(rule)
        # On CPUs weights and images in this layout gave one image equal bits whatever batch it came in (widths 64 and
        # 256, float32); in the default layout most logits change in a last bit.
        scorer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if isinstance(found, Masked | TwoMask) and found.masks is None:
            found = replace(found, masks=scorer.footprint.regions(threat).maximal())
        return Defense(scorer, found, threat, classes)

    def against(self, patch: str | Threat | Tensor, rule: str | Rule | None = None) -> "Defense":
        """The same network against another threat, or by another rule: another defense."""
        wanted = self.rule if rule is None else rule
        if isinstance(wanted, Masked | TwoMask):
            wanted = replace(wanted, masks=None)  # masks belong to the threat they were built for
        return Defense.build(self.scorer, wanted, patch, self.classes)

    def predict(self, images: Images) -> Tensor:
        """The class of each image by the rule's own inference, int64 [b]."""
        return self.rule.predict(self.scores(images), self._own_regions)

    def certify(self, images: Images, patch: str | Threat | Tensor | None = None, exact: bool = True) -> Certificate:
        """The class of each image and its proof against the threat, or against a smaller one under the same masks."""
        if patch is None:
            return self.certify_integers(self.scores(images), exact)
        smaller = self.scorer.footprint.regions(parse_threat(patch, self.threat.image_size)).maximal()
        return self.rule.certify(self.scores(images), smaller, exact)

    def certify_integers(self, scores: IntegerScores, exact: bool = True) -> Certificate:
        """As `certify`, from scores of this network: one forward pass serves many defenses."""
        return self.rule.certify(scores, self._own_regions, exact)

    def attack(self, images: Images, labels: Labels, settings: AttackSettings | None = None) -> Attacked:
        """Try to change the class of each image that is right, by patches of the threat: `bagcert.attacks.attack`."""
        return attack(self, images, labels, settings)

    @torch.no_grad()
    def scores(self, images: Images) -> IntegerScores:
        """The integer scores of images [b c h w] with pixels in [0, 1]."""
        self._check(images)
        device = next(self.scorer.parameters()).device
        parts = [
            self.scorer.scores(part.to(device).contiguous(memory_format=torch.channels_last))
            for part in images.split(BATCH)  # type: ignore[no-untyped-call]
        ]
        return read_scores(torch.cat(parts), self.scorer.step.bounds)

    @cached_property
    def _own_regions(self) -> Regions:
        """The maximal footprints of the threat; for a masking rule the masks themselves."""
        if isinstance(self.rule, Masked | TwoMask) and self.rule.masks is not None:
            return self.rule.masks
        return self.scorer.footprint.regions(self.threat).maximal()

    def _check(self, images: Images) -> None:
        height, width = self.scorer.footprint.image_size
        if images.dim() != 4 or tuple(images.shape[2:]) != (height, width) or not len(images):
            raise UsageError(
                f"expected images of shape [images, channels, {height}, {width}], got {list(images.shape)}; "
                "resize them, or add the missing axes"
            )
        if not images.is_floating_point():
            raise UsageError(f"expected images as floats in 0..1, got {images.dtype}; divide bytes by 255")
        least, most = (float(value) for value in images.aminmax())
        if not (least >= 0 and most <= 1):
            raise UsageError(
                f"expected pixels in 0..1, got {least:g}..{most:g}; do not normalize them, the network does that"
            )
