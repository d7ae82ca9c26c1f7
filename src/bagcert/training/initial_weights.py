"""Begin with the weights of a model instead of random ones."""

from pathlib import Path

from torch import nn

from bagcert.errors import UsageError
from bagcert.scorers.base import BuiltScorer, NetworkConfig
from bagcert.scorers.weights import load_foreign, load_scorer
from bagcert.stored_models import model_folder

HEAD, POSITIONS = "head", "positions"


def is_new(name: str) -> bool:
    """Whether a weight belongs to the head, which a network for other classes must learn anew."""
    return HEAD in name.split(".")


def take_weights(scorer: BuiltScorer, model: str) -> dict[str, str]:
    """Copy all weights of a model except its head, and its data normalization; return what the card says of the start.

    Learned positions are left out too if the pictures have another size than those of the model.
    """
    own = scorer.state_dict()
    start, card = load_scorer(model_folder(model))
    theirs = start.state_dict()
    fitting = {name: value for name, value in theirs.items() if name in own and own[name].shape == value.shape}
    kept = {name: value for name, value in fitting.items() if not is_new(name)}
    odd = [name for name in {**own, **theirs} if name not in kept and not is_new(name) and POSITIONS not in name]
    if odd:
        raise UsageError(
            f"The network of the recipe is not that of {model}: they differ in '{odd[0]}'. "
            "Use --start-from, which takes the model's network, and set no width, kernels or channels."
        )
    scorer.load_state_dict(own | kept)
    return {"model": model, "weights_sha256": card["weights_sha256"]}


def foreign_weights(network: NetworkConfig, file: str) -> dict[str, str]:
    """Give the caller's own network the weights of a file of another program; return what the card says of it."""
    return {"name": Path(file).name, "sha256": load_foreign(network.need_network(), Path(file))}


def freeze(scorer: nn.Module) -> None:
    """Let only the head learn. Batch norms of the rest keep their statistics."""
    for name, module in scorer.named_modules():
        if not is_new(name) and name:
            module.training = False
    for name, parameter in scorer.named_parameters():
        parameter.requires_grad_(is_new(name))
