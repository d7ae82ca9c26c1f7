import torch

from bagcert.scorers import ResidualConfig, ResidualScorer
from bagcert.training.trainer import Average

CONFIG = ResidualConfig(classes=3, width=4, kernels=(1,), paths=1, shake=False)


def test_weights_and_statistics_are_averaged_alike() -> None:
    scorer = ResidualScorer(CONFIG, (8, 8))
    average = Average(scorer, decay=0.9)
    expected = {name: value.clone() for name, value in scorer.state_dict().items()}
    for step in range(100):
        with torch.no_grad():
            for value in scorer.state_dict().values():
                value.copy_(torch.randn(value.shape) if value.is_floating_point() else value + 1)
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        for name, value in scorer.state_dict().items():
            expected[name] = (
                decay * expected[name] + (1 - decay) * value if value.is_floating_point() else value.clone()
            )
    torch.testing.assert_close(average.values, expected)
    assert int(average.values["stem.1.num_batches_tracked"]) == 100


def test_constant_weights_are_their_own_average() -> None:
    scorer = ResidualScorer(CONFIG, (8, 8))
    average = Average(scorer, decay=0.999)
    for step in range(5):
        average.update(step)
    torch.testing.assert_close(average.values, scorer.state_dict())
