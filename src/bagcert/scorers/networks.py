"""Every kind of network that a recipe can train and a card can name."""

from collections.abc import Mapping

from bagcert.errors import UsageError
from bagcert.scorers.ablation import AblationConfig
from bagcert.scorers.base import NetworkConfig
from bagcert.scorers.cleanser import CleanserConfig
from bagcert.scorers.ensemble import EnsembleConfig
from bagcert.scorers.interval import IntervalConfig
from bagcert.scorers.residual import ResidualConfig
from bagcert.settings import read_choice

# The first kind carries no name in its tables: recipes, cards and checkpoints were written before there was a second.
UNNAMED = "residual"
NETWORKS: dict[str, type[NetworkConfig]] = {
    UNNAMED: ResidualConfig,
    EnsembleConfig.name: EnsembleConfig,
    AblationConfig.name: AblationConfig,
    CleanserConfig.name: CleanserConfig,
    IntervalConfig.name: IntervalConfig,
}


def read_network(table: object) -> NetworkConfig:
    """The config that a [network] table stands for."""
    if not isinstance(table, Mapping):
        raise UsageError(f"expected a table for network, got {table!r}")
    return read_choice(NETWORKS, {"name": UNNAMED, **table}, "network")


def kind_of(config: NetworkConfig) -> str:
    """The name that a card gives to this kind of network."""
    return next(name for name, kind in NETWORKS.items() if type(config) is kind)
