"""The same scores give the same certificates on every device, to the last integer."""

import pytest
import torch

from bagcert.certify import certify_scores
from bagcert.rules import EveryRegion, LargestRegion, Masked, Monotone, Rule, TwoMask, trimmed_sum
from bagcert.threats import Footprint, Layer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

WIDE, TALL = Layer((1, 3), padding=(0, 1)), Layer((3, 1), padding=(1, 0))
PLAIN = Footprint.of_layers([Layer(3, padding=1), Layer(3, 2, padding=1)], (24, 20))
FOOTPRINTS = {
    "plain": PLAIN,
    "wrapped": Footprint.ablation((5, 4), (12, 11)),
    "cross": PLAIN.then(WIDE).join(PLAIN.then(TALL)),
}
RULES: list[Rule] = [LargestRegion(), EveryRegion(), Monotone(trimmed_sum(2)), Masked(), Masked("1/3"), TwoMask()]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("name", FOOTPRINTS)
def test_a_gpu_gives_the_same_integers(name: str, rule: Rule) -> None:
    footprint = FOOTPRINTS[name]
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 2**12, (64, 7, *footprint.grid), generator=generator)
    favored = torch.rand(64, *footprint.grid, generator=generator) < torch.linspace(0, 1, 64)[:, None, None]
    scores[:, 3][favored] = 2**12
    here, there = (
        certify_scores(values, "3x3,1x5", rule=rule, footprint=footprint, bounds=(0, 2**12), slack=3)
        for values in (scores, scores.cuda())
    )
    for field in ("predicted", "certified", "lead", "weakest_region", "second_region", "weakest_class"):
        one, other = getattr(here, field), getattr(there, field)
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other.cpu()), field
    if rule.name == "two-mask":
        assert int(here.certified.sum()) > 0
