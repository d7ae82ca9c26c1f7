"""`bagcert attack`: how many images are still classified correctly under the best patch that an attacker finds?"""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bagcert.attacks import AttackSettings
from bagcert.cli.model_options import ModelArgument, OwnNetwork, ProgramOption, own_network
from bagcert.cli.output import continued, counted, report_unsound, rows_path
from bagcert.cli.threat_options import FalseAlertsOption, MasksOption, PatchOption, against
from bagcert.defense import load
from bagcert.program import EXACT, find_device, usual_device
from bagcert.rows.attacked import AttackRows, attack_header, read_attack_rows, write_attack_rows
from bagcert.rows.header import describe, fitting_dataset
from bagcert.rows.resume import usual_path


def attack(
    model: ModelArgument,
    patch: PatchOption = None,
    masks: MasksOption = None,
    rule: Annotated[str | None, typer.Option(help="rule, built for the patch; default: the model's")] = None,
    false_alerts: FalseAlertsOption = None,
    data: Annotated[str | None, typer.Option(help="data set or folder; default: the model's training data")] = None,
    split: Annotated[str, typer.Option(help="train, validation, train+validation or test")] = "test",
    limit: Annotated[
        int | None, typer.Option(help="number of images, the first ones of the split; default: all", min=1)
    ] = None,
    steps: Annotated[int, typer.Option(help="steps per descent", min=1)] = AttackSettings.steps,
    step_size: Annotated[float, typer.Option(help="how far a pixel moves per step")] = AttackSettings.step_size,
    restarts: Annotated[
        int, typer.Option(help="descents per placement; all but the first start from random pixels", min=1)
    ] = 1,
    places: Annotated[int, typer.Option(help="number of placements to try, the weakest first", min=1)] = 1,
    sweep: Annotated[bool, typer.Option("--sweep", help="try every placement; only for few images")] = False,
    paper_place: Annotated[
        bool, typer.Option("--paper-place", help="try the paper's weakest placement instead of the certificate's")
    ] = False,
    fixed_target: Annotated[
        bool,
        typer.Option("--fixed-target", help="aim at one class throughout, as in the paper, instead of the closest"),
    ] = False,
    seed: Annotated[int, typer.Option(help="seed of the random starts", min=0)] = 0,
    out: Annotated[
        Path | None, typer.Option(help="file for the rows, ending in .jsonl; continued if it exists")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="folder of the data sets")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N; default: the GPU if there is one")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object instead of a table")] = False,
    program: ProgramOption = EXACT,
    network: OwnNetwork = None,
) -> None:
    begun = time.monotonic()
    settings = AttackSettings(steps, step_size, restarts, places, sweep, paper_place, fixed_target, seed)
    loaded = load(model, find_device(device, usual_device()), own_network(network), program)
    defense = against(loaded, patch, masks, rule, false_alerts)
    dataset = fitting_dataset(data, defense, data_dir)
    source = dataset.split(split)
    header = {**describe(model, defense, dataset, split), "images": min(limit or len(source), len(source))}
    path = rows_path(out) if out is not None else usual_path(attack_header(header, defense, settings))
    with continued(path), counted("attacking", header["images"]) as after_batch:
        write_attack_rows(path, defense, source, header, settings, after_batch)
    rows = read_attack_rows(path)
    result = to_object(rows, time.monotonic() - begun)
    if as_json:
        typer.echo(json.dumps(result))
    else:
        show(rows, result, path)
    report_unsound(rows, path)


def to_object(rows: AttackRows, seconds: float) -> dict[str, Any]:
    """What `--json` prints. Accuracies are fractions."""
    header = rows.header
    return {
        "model": header["model"],
        "data": header["data"]["name"],
        "patch": header["patch"],
        "rule": header["rule"],
        "images": len(rows.labels),
        "clean_accuracy": rows.clean_accuracy,
        "certified_accuracy": rows.certified_accuracy,
        "attacked_accuracy": rows.attacked_accuracy,
        "flips_of_certified": len(rows.flips_of_certified),
        "steps": header["attack"]["steps"],
        "restarts": header["attack"]["restarts"],
        "seconds": round(seconds, 2),
        "device": header["device"],
    }


def show(rows: AttackRows, result: dict[str, Any], path: Path) -> None:
    """Print a table in percent."""
    table = Table("patch", "rule", "clean %", "attacked %", "certified %")
    shares = (f"{100 * result[f'{key}_accuracy']:.2f}" for key in ("clean", "attacked", "certified"))
    table.add_row(result["patch"], result["rule"], *shares)
    console = Console(soft_wrap=True, highlight=False)
    console.print(table)
    console.print(f"{len(rows.labels)} images of {result['data']} in {result['seconds']:.0f} s; rows: {path}")
