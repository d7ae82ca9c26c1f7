"""The same scores give the same certificates on every device, to the last integer."""

import pytest
import torch

from bagcert.certify import certify_scores
from bagcert.rules import Detect, EveryRegion, LargestRegion, Masked, Monotone, Rule, TwoMask, trimmed_sum
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
ALERTING: list[Rule] = [Detect(2**14), TwoMask(alert_above=2**14)]
FIELDS = ("predicted", "certified", "lead", "weakest_region", "second_region", "weakest_class", "alert", "detectable")


@pytest.mark.parametrize(
    ("rule", "patch"),
    [(rule, "3x3,1x5") for rule in RULES + ALERTING]
    + [(rule, "2*3x3") for rule in (LargestRegion(), EveryRegion(), TwoMask(), *ALERTING)],
    ids=lambda value: value.name if isinstance(value, Rule) else value,
)
@pytest.mark.parametrize("name", FOOTPRINTS)
def test_a_gpu_gives_the_same_integers(name: str, rule: Rule, patch: str) -> None:
    footprint = FOOTPRINTS[name]
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 2**12, (64, 7, *footprint.grid), generator=generator)
    favored = torch.rand(64, *footprint.grid, generator=generator) < torch.linspace(0, 1, 64)[:, None, None]
    scores[:, 3][favored] = 2**12
    if patch.startswith("2*"):
        scores = scores[::8]  # all pairs take longer
    here, there = (
        certify_scores(values, patch, rule=rule, footprint=footprint, bounds=(0, 2**12), slack=3)
        for values in (scores, scores.cuda())
    )
    for field in FIELDS:
        one, other = getattr(here, field), getattr(there, field)
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other.cpu()), field
    if rule.name == "two-mask" and patch == "3x3,1x5":
        assert int(here.certified.sum()) > 0
