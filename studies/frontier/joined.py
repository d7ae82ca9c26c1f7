"""Networks that were trained one by one as a single run, which `bagcert` loads, certifies, exports and serves."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from bagcert.errors import UsageError
from bagcert.files import read_tensors
from bagcert.scorers.mixed import MixedConfig
from bagcert.scorers.residual import ResidualScorer
from bagcert.scorers.weights import SCALE, WEIGHTS, load_scorer, save_scorer

SHARED = ("classes", "channels", "strides", "paths", "shake", "positions", "position_rank", "step")
FACTS = ("classes", "data", "framing", "patch", "rule")  # of a card
OWN = ("format", "weights_sha256", "scorer")  # what each card says of its own network, and a new one of its own


def join_runs(runs: Sequence[Path], mirrored: bool, out: Path, counted: Sequence[float]) -> None:
    """Write a run of the network `mixed`. Its card has what all of their cards agree on.

    The weights are those that the runs store, but for the last layer of a run that is `counted` other than once: by so
    much its scores are multiplied. The card says so if these numbers differ.
    """
    loaded = [load_scorer(run) for run in runs]
    scorers = [scorer for scorer, _ in loaded if type(scorer) is ResidualScorer]  # no ensemble
    tables = [vars(scorer.config) for scorer in scorers]
    shared = [{key: table[key] for key in SHARED} for table in tables]
    facts = [{key: card.get(key) for key in FACTS} for _, card in loaded]
    if len(scorers) < len(runs) or any(each != shared[0] for each in shared) or any(each != facts[0] for each in facts):
        raise UsageError(
            f"Runs to be joined must be residual networks that share {', '.join(SHARED)}, and {', '.join(FACTS)} on "
            "their cards. Train them with one recipe."
        )
    common = shared[0]
    if set(scorers[0].config.block_strides) != {1}:
        raise UsageError(f"Runs to be joined must have stride 1, but these have {list(common['strides'])}.")
    config = MixedConfig(
        **{key: value for key, value in common.items() if key != "strides"},
        width=tuple(scorer.config.block_widths for scorer in scorers),
        kernels=tuple(scorer.config.kernels for scorer in scorers),
        mirrored=mirrored,
    )
    stored = {
        f"networks.{number}.{name}": value
        for number, (run, times) in enumerate(zip(runs, counted, strict=True))
        for name, value in multiplied(read_tensors(run / WEIGHTS)[0], times).items()
    }
    scorer = config.build(scorers[0].image_size, mean=(0.0,), std=(1.0,))
    first, *others = (card for _, card in loaded)
    agreed = [key for key, value in first.items() if key not in OWN and all(card.get(key) == value for card in others)]
    unequal = {"counted": list(counted)} if len(set(counted)) > 1 else {}
    save_scorer(out, scorer, stored, {key: first[key] for key in agreed} | unequal)


def multiplied(stored: dict[str, Tensor], times: float) -> dict[str, Tensor]:
    """The weights of a network, stored in 8 bits or as they are, with so many times its scores."""
    matrix = "head.weight" + SCALE if "head.weight" + SCALE in stored else "head.weight"
    return {name: value * times if name in (matrix, "head.bias") else value for name, value in stored.items()}
