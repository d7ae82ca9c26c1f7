"""Samples come from every class, so that some are proven, some are not, and a patch can show another class."""

from bagcert.cli.serve import varied


def test_samples_are_of_every_class_in_the_order_of_the_data() -> None:
    assert varied([3, 8, 8, 0, 6, 6, 1, 3, 2], 7) == [
        0,
        1,
        2,
        3,
        4,
        6,
        8,
    ]  # the first of 3, 8, 0, 6, 1, 2, and one more
    assert varied([1, 1, 0, 0], 9) == [0, 1, 2, 3]
    assert varied([0, 1, 2, 3], 2) == [0, 1]
