"""Every defense by name, ours and the rivals': how each is built, and which recipe trains it for CIFAR-10."""

from dataclasses import dataclass, replace

from bagcert.defense import Defense
from bagcert.scorers.ablation import AblationConfig
from bagcert.scorers.base import NetworkConfig
from bagcert.scorers.cleanser import CleanserConfig
from bagcert.scorers.interval import IntervalConfig
from bagcert.scorers.residual import ResidualConfig


@dataclass(frozen=True)
class Entry:
    """A defense as its recipe trains it; the first rule is its own, the others certify the same scores."""

    source: str
    recipe: str
    network: NetworkConfig
    rules: tuple[str, ...]

    def build(self, image_size: tuple[int, int], patch: str, classes: tuple[str, ...]) -> Defense:
        """The defense, before its weights are trained or loaded."""
        scorer = self.network.build(image_size, mean=(0.0,), std=(1.0,)).eval()
        return Defense.build(scorer, self.rules[0], patch, classes)


SUMS = ("every-region", "largest-region", "two-mask")
SMOOTHING = ("largest-region", "every-region", "two-mask", "masked")
PLAIN = ResidualConfig(width=256, paths=1, shake=False)  # receptive field 7
PLACED = replace(PLAIN, width=(128,) * 3 + (400,) * 6, positions=True)

DEFENSES: dict[str, Entry] = {
    "bagcert": Entry("Metzen & Yatsura 2021", "paper-cifar10-rf7", ResidualConfig(), (*SUMS, "masked")),
    "two-mask": Entry("this package", "two-mask-cifar10", replace(PLACED, step="logits"), ("two-mask",)),
    "ds-column": Entry("Levine & Feizi 2020", "ds-column-cifar10", AblationConfig(kept=(32, 4)), SMOOTHING),
    "ds-row": Entry("Levine & Feizi 2020", "ds-row-cifar10", AblationConfig(kept=(4, 32)), SMOOTHING),
    "ds-block": Entry("Levine & Feizi 2020", "ds-block-cifar10", AblationConfig(kept=(12, 12)), SMOOTHING),
    "clipped-bagnet": Entry("Zhang et al. 2020", "clipped-bagnet-cifar10", replace(PLAIN, step="tanh"), SUMS),
    "mask-bn": Entry("Xiang et al. 2021", "mask-bn-cifar10", replace(PLAIN, step="relu"), ("masked", "two-mask")),
    "mask-ds": Entry("Xiang et al. 2021", "mask-ds-cifar10", AblationConfig(theta=0.0), ("masked", "two-mask")),
    "ibp": Entry("Chiang et al. 2020", "ibp-cifar10", IntervalConfig(placements=10), ("unanimous",)),
    "patchcleanser": Entry("Xiang et al. 2022", "patchcleanser-cifar10", CleanserConfig(), ("unanimous",)),
}
