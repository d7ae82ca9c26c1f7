"""`bagcert audit`: does this machine and program compute scores as the proofs assume?"""

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from bagcert.audit import audit as audit_program
from bagcert.audit.report import to_object, to_page
from bagcert.cli.model_options import ModelArgument, OwnNetwork, ProgramOption, own_network
from bagcert.defense import load
from bagcert.errors import UsageError
from bagcert.files import write_atomically
from bagcert.program import EXACT, Program, device_name, versions
from bagcert.rows.header import fitting_dataset


def audit(
    model: ModelArgument,
    backend: Annotated[
        str, typer.Option(help="torch, or onnx for the network as `bagcert export` writes it")
    ] = "torch",
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N")] = "cpu",
    program: ProgramOption = EXACT,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16")] = "float32",
    compiled: Annotated[bool, typer.Option("--compile", help="run the network by torch.compile")] = False,
    tf32: Annotated[bool, typer.Option("--tf32", help="on a GPU: convolutions in TF32, which no proof uses")] = False,
    cudnn: Annotated[
        bool, typer.Option("--cudnn", help="on a GPU: float32 convolutions by cuDNN, which no proof uses")
    ] = False,
    images: Annotated[int, typer.Option(help="number of clean test images to start from", min=2)] = 16,
    out: Annotated[Path, typer.Option(help="HTML page to write")] = Path("audit.html"),
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object instead of a table")] = False,
    data: Annotated[str | None, typer.Option(help="data set or folder; default: the model's training data")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="folder of the data sets")] = None,
    network: OwnNetwork = None,
) -> None:
    defense = load(model, device, own_network(network))
    source = fitting_dataset(data, defense, data_dir).split("test")
    clean = next(source.batches(images, "cpu")).images
    # An exported graph takes batches as they come; torch runs batches of the defense's size.
    batch = 0 if backend == "onnx" else defense.batch_size
    asked = Program(backend, device, dtype, compiled, batch=batch, tf32=tf32, cudnn=cudnn)
    if program != EXACT and asked != Program(device=device):
        raise UsageError(f"The program {program} sets backend, dtype and all else by itself. Leave out the others.")
    audited = asked if program == EXACT else defense.by(program).program
    with Console(stderr=True).status("auditing") as status:
        found = audit_program(defense, clean, audited, lambda name: status.update(f"auditing: {name} is done"))
    about = {
        "model": model,
        "patch": str(defense.threat),
        "rule": defense.rule.written,
        "weights_sha256": defense.card["weights_sha256"],
        "images": len(clean),
        "device": device_name(defense.device),
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }
    result = to_object(found, about)
    write_atomically(out, to_page(result).encode())
    if as_json:
        typer.echo(json.dumps(result))
    else:
        show(result, out)
    if not found.passed:
        raise typer.Exit(1)


def show(result: dict[str, Any], out: Path) -> None:
    """Print a table of the checks, the guard bands, and what cures a violation."""
    console = Console(soft_wrap=True, highlight=False)
    table = Table("check", "compared", "moved", "largest", "result")
    for check in result["checks"]:
        largest = f"{check['largest']:.1e}" if check["moved"] else ""
        verdict = "holds" if check["passed"] else "[red]violated[/red]"
        counts = [f"{check[key]:,}" if check["compared"] else "" for key in ("compared", "moved")]
        table.add_row(check["name"], *counts, largest, verdict)
    console.print(f"{result['model']}: {result['program']}", markup=False)
    console.print(table)
    bands = result["guard_band"]
    console.print(f"guard band: {bands['inside']} inside this program, {bands['to_eager_torch']} to eager torch")
    if result["cure"]:
        console.print(f"what cures it: {result['cure']}", markup=False)
    console.print(f"page: {out}")
