"""`bagcert serve`: a model behind HTTP whose answers come with their proofs."""

import ipaddress
import socket
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer
from torch import Tensor

from bagcert.cli.model_options import ModelArgument, OwnNetwork, ProgramOption, own_network
from bagcert.cli.threat_options import FalseAlertsOption, MasksOption, PatchOption, against
from bagcert.data import FolderSettings, cifar10, load_dataset
from bagcert.data.base import data_folder
from bagcert.defense import load
from bagcert.errors import UsageError
from bagcert.pictures import Framing
from bagcert.program import EXACT, versions
from bagcert.rows.header import own_data
from bagcert.server import need_serving

if TYPE_CHECKING:
    from bagcert.server.model import Model
    from bagcert.server.samples import Sample

SHUTDOWN_SECONDS = 180  # to finish accepted requests: more than any may take
LOOKED_AT = 256  # test images from which to pick a sample of each class
CONNECTIONS = 1024  # open at the same time, with or without a request
SETTINGS: dict[str, Any] = {
    **{"log_level": "warning", "access_log": False, "server_header": False},
    **{"timeout_graceful_shutdown": SHUTDOWN_SECONDS, "limit_concurrency": CONNECTIONS},
}


def serve(
    model: ModelArgument,
    host: Annotated[
        str, typer.Option(help="address to listen on; 0.0.0.0: all addresses of this machine")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to listen on; 0: any free one", min=0, max=65535)] = 8000,
    token: Annotated[
        str | None,
        typer.Option(envvar="BAGCERT_TOKEN", help="secret that requests must send as 'Authorization: Bearer TOKEN'"),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="host name to answer to without a token, beside addresses and localhost")
    ] = None,
    patch: PatchOption = None,
    masks: MasksOption = None,
    rule: Annotated[str | None, typer.Option(help="rule, built for the patch; default: the model's")] = None,
    false_alerts: FalseAlertsOption = None,
    backend: Annotated[
        str, typer.Option(help="torch or onnx; onnx is faster, and proofs hold for its own arithmetic")
    ] = "torch",
    threads: Annotated[int | None, typer.Option(help="threads of the model; default: one per core", min=1)] = None,
    data_dir: Annotated[Path | None, typer.Option(help="folder of the data sets, for samples")] = None,
    program: ProgramOption = EXACT,
    network: OwnNetwork = None,
) -> None:
    need_serving()
    import uvicorn

    from bagcert.server.app import build_app
    from bagcert.server.connections import with_header_timeout
    from bagcert.server.limits import Limits
    from bagcert.server.model import Model

    if token is not None and not (token and token.isascii() and token.isprintable()):
        raise UsageError(
            "The token must be one or more printable ASCII characters. "
            "Choose another, or leave out --token and BAGCERT_TOKEN."
        )
    warnings.filterwarnings("ignore", module="PIL")  # its remarks on the metadata of uploaded pictures
    if threads is not None:
        torch.set_num_threads(threads)
    with listen(host, port) as listening:  # first: connections wait while the model loads, instead of being refused
        loaded = load(model, network=own_network(network), program=program)
        defense = against(loaded, patch, masks, rule, false_alerts)
        defense.check()
        about = {"weights_sha256": str(defense.card["weights_sha256"]), "version": versions()["bagcert"]}
        served = Model(Path(model).name, defense, backend, about)
        samples = sample_pictures(own_data(defense), served, data_dir)
        app = build_app(served, samples, token=token, hosts=[host, *(allow_host or ())])
        protocol = with_header_timeout(Limits().body_seconds)
        announce(served, listening, open_to_all=token is None)
        with suppress(KeyboardInterrupt):  # uvicorn raises it again once everything is answered
            uvicorn.Server(uvicorn.Config(app, http=protocol, **SETTINGS)).run(sockets=[listening])


def announce(served: "Model", listening: socket.socket, open_to_all: bool) -> None:
    """Print what is served, by which arithmetic, and where."""
    defense, (host, port) = served.defense, listening.getsockname()[:2]
    typer.echo(f"{served.name}: {defense.threat.describe()}, {defense.rule.written}; scores by {served.program}")
    typer.echo(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
    if open_to_all and not ipaddress.ip_address(host).is_loopback:
        typer.echo("anyone who can reach this address may use it; to require a secret, add --token", err=True)


def listen(host: str, port: int) -> socket.socket:
    """The socket to listen on."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]
        raise UsageError(f"Cannot listen on {host}:{port}: {reason}. Choose another --port.") from error


def sample_pictures(data: str | None, served: "Model", data_dir: Path | None) -> "list[Sample]":
    """Test images of the model's data set, from all classes, if it is on this machine; else drawn ones."""
    from bagcert.server.samples import COUNT, Sample, drawn_samples

    if data is None:
        return drawn_samples(served.image_size, served.channels)
    try:
        images, labels, classes = first_images(data, LOOKED_AT, data_dir, served.defense.framing)
    except UsageError:
        return drawn_samples(served.image_size, served.channels)
    if tuple(images.shape[1:]) != (served.channels, *served.image_size):
        return drawn_samples(served.image_size, served.channels)
    return [
        Sample(images[index].permute(1, 2, 0).numpy(), classes[labels[index]])
        for index in varied(labels.tolist(), COUNT)
    ]


def varied(labels: list[int], count: int) -> list[int]:
    """Positions of `count` images, in order: the first of each class, then the first of the rest."""
    first = [index for index, label in enumerate(labels) if label not in labels[:index]]
    return sorted([*first, *(index for index in range(len(labels)) if index not in first)][:count])


def first_images(
    data: str, count: int, data_dir: Path | None, framing: Framing
) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """The first test images as uint8 [n c h w], their labels, and the names of the classes."""
    if data == "cifar10":  # read one file instead of six, so that the server starts sooner
        content = cifar10.read_batch(cifar10.batch_folder(data_folder(data_dir)) / "test_batch.bin")
        arrays = cifar10.to_arrays(content)
        return arrays.images[:count].clone(), arrays.labels[:count], cifar10.CLASSES
    dataset = load_dataset(data, data_dir, FolderSettings(framing))
    batch = next(dataset.split("test").batches(count, "cpu"))
    return (batch.images * 255).round().to(torch.uint8), batch.labels, dataset.classes
