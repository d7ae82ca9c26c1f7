"""`bagcert cover`: a defense of any classifier, which then certifies, attacks and serves like every other model."""

from pathlib import Path
from typing import Annotated, Any

import typer
from torch import nn

from bagcert.cli.model_options import own_network, timm_settings
from bagcert.data.folder import class_folders
from bagcert.defending import cover as cover_network
from bagcert.errors import UsageError
from bagcert.pictures import Framing
from bagcert.program import find_device, usual_device
from bagcert.scorers.weights import load_foreign
from bagcert.threats.masks_file import read_masks


def cover(
    network: Annotated[
        str, typer.Argument(metavar="MODULE:FUNCTION", help="the function that returns the network, or timm:NAME")
    ],
    out: Annotated[Path, typer.Option(help="folder for weights and card")],
    classes: Annotated[
        str, typer.Option(help="how many, or a file with a name per line, or a folder with a folder per class")
    ],
    size: Annotated[str | None, typer.Option(help="of its images, as in 224 or 224x192; of timm, the model's")] = None,
    weights: Annotated[
        Path | None, typer.Option(help="file of trained weights, .safetensors or .pth; default: as the network comes")
    ] = None,
    patch: Annotated[str, typer.Option(help="patch such as 32x32 or 2%")] = "2%",
    rule: Annotated[str, typer.Option(help="unanimous (recover the class) or detect (raise alerts)")] = "unanimous",
    masks: Annotated[
        str,
        typer.Option(
            metavar="K or FILE.npy", help="masks along each axis, or your own, booleans (masks, height, width)"
        ),
    ] = "6",
    mean: Annotated[str | None, typer.Option(help="of its channels, for pixels in 0..1, as in 0.5,0.5,0.5")] = None,
    std: Annotated[str | None, typer.Option(help="of its channels, as in 0.25,0.25,0.25")] = None,
    fill: Annotated[str | None, typer.Option(help="color of a masked pixel; default: the mean")] = None,
    channels: Annotated[int, typer.Option(help="1 for gray pictures, 3 for color", min=1)] = 3,
    at_once: Annotated[int | None, typer.Option(help="masked images per pass; default: what fits", min=1)] = None,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16")] = "float32",
    compiled: Annotated[bool, typer.Option("--compile", help="run the network by torch.compile")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N; default: the GPU if there is one")] = None,
) -> None:
    found = own_network(network, pretrained=weights is None)
    assert found is not None
    found.eval()
    foreign = (
        {} if weights is None else {"weights_from": {"name": weights.name, "sha256": load_foreign(found, weights)}}
    )
    known = timm_settings(found) if network.startswith("timm:") else {}
    image_size = read_size(size) if size is not None else known.get("size")
    if image_size is None:
        raise UsageError("Nothing says how large the network's images are. Add --size, as in --size 224.")
    usual = Framing.usual(image_size, channels)
    framing = known.get("framing") if image_size == known.get("size") else None
    defense = cover_network(
        found.to(find_device(device, usual_device())),
        image_size,
        read_classes(classes),
        patch,
        rule,
        masks=int(masks) if masks.isdigit() else read_masks(Path(masks), image_size).masks,
        mean=numbers(mean, "mean") or known.get("mean", (0.0,)),
        std=numbers(std, "std") or known.get("std", (1.0,)),
        fill=numbers(fill, "fill"),
        channels=channels,
        framing=framing or usual,
        at_once=at_once,
        dtype=dtype,
        compiled=compiled,
    )
    defense.noted(foreign).save(out)
    typer.echo(f"{out}: {describe(found)}, {defense.threat.describe()}, {defense.rule.written}, {defense.program}")
    typer.echo(f"passes per image: {defense.scorer.passes} to certify. Load it with --network {network}")


def describe(network: nn.Module) -> str:
    return f"{type(network).__name__}, {sum(each.numel() for each in network.parameters()):,} weights"


def read_size(text: str) -> tuple[int, int]:
    height, _, width = text.partition("x")
    if not (height.isdigit() and (width or height).isdigit()):
        raise UsageError(f"Cannot read the size '{text}'. Write height x width in pixels, as in 224x224.")
    return int(height), int(width or height)


def read_classes(text: str) -> list[str] | int:
    """How many, or their names: the lines of a file, or the folders of a folder, below its `val` or `train`."""
    if text.isdigit():
        return int(text)
    path = Path(text)
    if path.is_dir():
        parts = [path / name for name in ("val", "train") if (path / name).is_dir()]
        return list(class_folders(parts[0] if parts else path))
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{text} is no number, file or folder of classes. Write how many there are.") from error


def numbers(text: str | None, option: str) -> Any:
    """The numbers of an option; None if it is not given."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"The option --{option} takes numbers such as 0.5,0.5,0.5, not '{text}'.") from error
