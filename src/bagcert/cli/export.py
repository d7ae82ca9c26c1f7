"""`bagcert export`: a model as one ONNX graph that certifies its own answers."""

from pathlib import Path
from typing import Annotated

import typer

from bagcert.cli.model_options import ModelArgument, OwnNetwork, own_network
from bagcert.cli.threat_options import FalseAlertsOption, MasksOption, PatchOption, against
from bagcert.defense import load
from bagcert.errors import UsageError
from bagcert.files import write_atomically
from bagcert.onnx import need_onnx
from bagcert.onnx.guard import GuardBand
from bagcert.program import versions


def export(
    model: ModelArgument,
    out: Annotated[Path, typer.Option(help="file for the graph, ending in .onnx")],
    patch: PatchOption = None,
    masks: MasksOption = None,
    rule: Annotated[str | None, typer.Option(help="rule, built for the patch; default: the model's")] = None,
    false_alerts: FalseAlertsOption = None,
    slack: Annotated[int, typer.Option(help="guard band: how many units each fixed-point score may be off", min=0)] = 0,
    uncertain: Annotated[
        float, typer.Option(help="guard band: votes whose logit is this close to 0 are uncertain", min=0)
    ] = 0.0,
    network: OwnNetwork = None,
) -> None:
    need_onnx()
    from bagcert.onnx.export import export_defense

    if out.suffix != ".onnx":
        raise UsageError(f"The name of --out must end in .onnx, but is {out}.")
    defense = against(load(model, network=own_network(network)), patch, masks, rule, false_alerts)
    guard = GuardBand(slack, uncertain)
    digest = defense.card["weights_sha256"]
    origin = {"model": Path(model).name, "weights_sha256": digest, "bagcert": versions()["bagcert"]}
    graph = export_defense(defense, guard, origin).SerializeToString()
    write_atomically(out, graph)
    size = f"{len(graph) / 2**20:.1f} MiB"
    typer.echo(f"{out}: {model}, {defense.threat.describe()}, {defense.rule.written}, guard band {guard}, {size}")
