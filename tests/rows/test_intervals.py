import pytest

from bagcert.rows.accuracy import wilson


def test_known_intervals() -> None:
    assert wilson(8, 10) == pytest.approx((0.490162, 0.943318), abs=1e-6)  # Newcombe's formula by hand
    assert wilson(6800, 10000) == pytest.approx((0.670789, 0.689073), abs=1e-6)


def test_the_ends_are_exact() -> None:
    assert wilson(0, 10)[0] == 0.0 and wilson(0, 10)[1] == pytest.approx(0.277533, abs=1e-6)
    assert wilson(10, 10)[1] == 1.0 and wilson(10, 10)[0] == pytest.approx(1 - 0.277533, abs=1e-6)
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("successes", range(1, 20))
def test_the_share_lies_inside(successes: int) -> None:
    low, high = wilson(successes, 20)
    assert 0 < low < successes / 20 < high <= 1
