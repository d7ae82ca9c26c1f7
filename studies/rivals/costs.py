"""What a defense costs: the small JSON file that the GPU run leaves beside its rows."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path

from bagcert.config import read_config
from bagcert.errors import UsageError
from bagcert.files import read_json, write_json


@dataclass(frozen=True)
class Training:
    """How the weights were trained."""

    recipe: str
    epochs: float
    seconds: float
    device: str
    beside: int = 0  # other runs that shared the device and slowed it down
    weights_of: str = ""  # the rival whose training this was, if it was another one


@dataclass(frozen=True)
class Ties:
    """Images that the paper's own tie rule would certify and ours does not, of the images that were timed."""

    rule: str
    added: int


@dataclass(frozen=True)
class Cost:
    """Of one defense against one patch by its own rule; seconds are those of network and rule for 10,000 images."""

    defense: str
    weights_sha256: str
    patch: str
    rule: str
    device: str
    torch: str
    precision: str
    passes: int  # of the network, for one image
    flops: int  # of all passes, for one image; a multiplication and an addition are two
    parameters: int
    images: int  # that were timed; seconds are scaled from them
    seconds: float
    training: Training
    ties: Ties | None = None

    def __post_init__(self) -> None:
        positive = (self.seconds, self.images, self.passes, self.flops, self.parameters)
        spent = self.training
        others = (spent.seconds, spent.epochs, spent.beside, 0 if self.ties is None else self.ties.added)
        if not (all(0 < number < math.inf for number in positive) and all(0 <= each < math.inf for each in others)):
            raise UsageError(
                "Seconds, images, passes, flops and parameters must be finite and above 0, and other costs at least 0, "
                f"but they are {positive} and {others}."
            )

    @property
    def on_gpu(self) -> bool:
        """A time on one CPU says little about another."""
        return not self.device.startswith("CPU")


def write_cost(path: Path, cost: Cost) -> None:
    write_json(path, asdict(cost))


def read_cost(path: Path) -> Cost:
    table = read_json(path)
    try:
        for key, kind in (("training", Training), ("ties", Ties)):
            if table.get(key) is not None:
                table[key] = read_config(kind, table[key], key)
        return read_config(Cost, {key: value for key, value in table.items() if value is not None}, "costs")
    except (TypeError, UsageError) as error:  # also if a key is missing
        raise UsageError(f"Measure all costs of the defense in {path} again: {error}") from error
