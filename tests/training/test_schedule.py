from itertools import pairwise

import pytest

from bagcert.errors import UsageError
from bagcert.scorers import ResidualConfig, ResidualScorer
from bagcert.training.optimizers import MuonConfig
from bagcert.training.schedule import ScheduleConfig, set_rates

CONFIG = ResidualConfig(classes=3, width=8, kernels=(3, 1), paths=1, shake=False)


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_schedule_rises_then_falls_to_zero(shape: str) -> None:
    schedule = ScheduleConfig(shape=shape, epochs=50, warmup_epochs=5)
    factors = [schedule.factor(step, 1000) for step in range(1000)]
    assert factors[0] == pytest.approx(0.01) and factors[49] == pytest.approx(0.5)
    assert max(factors) == pytest.approx(1) and factors.index(max(factors)) in (98, 99)
    assert all(early < late for early, late in pairwise(factors[:99]))
    assert all(early > late for early, late in pairwise(factors[99:]))
    assert 0 < factors[-1] < 2e-3
    assert factors[549] == pytest.approx(0.5, abs=2e-3)


def test_schedule_keeps_its_shape_for_any_number_of_steps() -> None:
    schedule = ScheduleConfig(shape="linear", epochs=10, warmup_epochs=1)
    for steps in (1, 2, 3, 7, 10_000):
        factors = [schedule.factor(step, steps) for step in range(steps)]
        assert all(0 < factor <= 1 for factor in factors)
    assert ScheduleConfig(shape="linear", epochs=10, warmup_epochs=0).factor(0, 10) == pytest.approx(10 / 11)


def test_rates_are_shares_of_the_built_ones() -> None:
    optimizers = MuonConfig(lr=0.03, other_lr=0.002).build(ResidualScorer(CONFIG, (8, 8)))
    for factor in (0.5, 0.1, 1.0):
        set_rates(optimizers, factor)
        rates = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
        assert rates == pytest.approx([0.03 * factor, 0.002 * factor])


def test_impossible_schedules_are_refused() -> None:
    with pytest.raises(UsageError, match=r"Unknown schedule.shape 'step'\. .*Known: cosine, linear\."):
        ScheduleConfig(shape="step")
    with pytest.raises(UsageError, match=r"schedule.warmup_epochs must be at least 0 and below schedule.epochs = 5"):
        ScheduleConfig(epochs=5, warmup_epochs=5)
    with pytest.raises(UsageError, match=r"but is 2\.5\. Set both: --set schedule\.warmup_epochs=0\.2$"):
        ScheduleConfig(epochs=2, warmup_epochs=2.5)
