"""`bagcert export`: a model as one ONNX graph that certifies its own answers."""

from pathlib import Path
from typing import Annotated

import typer

from bagcert.defense import load
from bagcert.errors import UsageError
from bagcert.files import write_atomically
from bagcert.onnx import need_onnx
from bagcert.onnx.guard import GuardBand
from bagcert.program import versions


def export(
    model: Annotated[str, typer.Argument(help="a shipped model, or a folder written by `bagcert train`")],
    out: Annotated[Path, typer.Option(help="the graph, ending in .onnx")],
    patch: Annotated[str | None, typer.Option(metavar="HxW", help="default: the model's")] = None,
    rule: Annotated[str | None, typer.Option(help="built for the patch; default: the model's")] = None,
    slack: Annotated[int, typer.Option(help="guard band: units that each fixed-point score may be off", min=0)] = 0,
    uncertain: Annotated[float, typer.Option(help="guard band: votes whose logit is this close to 0", min=0)] = 0.0,
) -> None:
    """Write one graph from pixels to class, certificate and weakest place; onnxruntime alone runs it."""
    need_onnx()
    from bagcert.onnx.export import export_defense

    if out.suffix != ".onnx":
        raise UsageError(f"expected --out to end in .onnx, got {out}; name it so")
    defense = load(model).against(patch, rule)
    guard = GuardBand(slack, uncertain)
    digest = defense.card["weights_sha256"]
    origin = {"model": Path(model).name, "weights_sha256": digest, "bagcert": versions()["bagcert"]}
    graph = export_defense(defense, guard, origin).SerializeToString()
    write_atomically(out, graph)
    size = f"{len(graph) / 2**20:.1f} MiB"
    typer.echo(f"{out}: {model}, {defense.threat.describe()}, {defense.rule.name}, guard band {guard}, {size}")
