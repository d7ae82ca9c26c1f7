import pytest

from bagcert.errors import UsageError
from benchmarks.table1 import main, with_ratios


def test_ratios_are_to_the_paper_s_network_of_receptive_field_7() -> None:
    rows = [
        {"network": "paper, field 7", "network_seconds": 2.0, "rule_seconds": 0.0},
        {"network": "cifar10-small", "network_seconds": 0.2, "rule_seconds": 0.05},
    ]
    relative = [{"network": row["network"], **ratios} for row, ratios in zip(rows, RATIOS, strict=True)]
    assert with_ratios(rows, absolute=False) == relative
    assert with_ratios(rows, absolute=True)[1] == {**rows[1], **RATIOS[1]}


def test_a_misspelt_network_is_refused_before_anything_is_timed() -> None:
    with pytest.raises(
        UsageError, match=r"Unknown network 'paper, field 8'\. Did you mean 'paper, field \d'\? Known: .*cif"
    ):
        main(network=["cifar10-small", "paper, field 8"])


RATIOS = ({"of_field_7": 1.0, "rule_of_network": 0.0}, {"of_field_7": 0.125, "rule_of_network": 0.25})
