"""Audit the shipped models with every program of this machine, and fill the table of docs/deploy.md.

    python -m benchmarks.audits --device cpu     (eager, compiled, bfloat16, onnxruntime)
    python -m benchmarks.audits --device cuda    (eager and compiled, with and without cuDNN, TF32, bfloat16)
    python -m benchmarks.audits --table-only     (write the table again)

With --keep, an audit that passed is not run again for the same weights, call and version of torch, for example to add a
model. Each one names the versions that it ran with. Leave --keep out after a change of the code.
"""

import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from bagcert.audit import audit
from bagcert.audit.audit import NO_CURE
from bagcert.audit.report import to_object
from bagcert.data import load_dataset
from bagcert.defense import load
from bagcert.errors import first_line
from bagcert.files import read_json, write_atomically
from bagcert.program import FAST, Program, find_program, versions
from bagcert.stored_models import card, shipped_models
from bagcert.tensors import Images
from studies.common.commands import call
from studies.common.results import BENCHMARKS, ROOT, provenance, write_results
from studies.common.tables import Lines, put_table

RESULTS, PAGE = BENCHMARKS, ROOT / "docs" / "deploy.md"
PROGRAMS = {
    "cpu": (
        ("eager: what `bagcert certify` runs", Program()),
        ("`--compile`", Program(compiled=True)),
        ("`--dtype bfloat16`", Program(dtype="bfloat16")),
        ("`--backend onnx`", Program(backend="onnx", batch=0)),
        ("`--program fast`", find_program(FAST, "cpu")),
    ),
    "cuda": (
        ("`--device cuda`: what `bagcert certify` runs", Program(device="cuda")),
        ("`--device cuda --compile`", Program(device="cuda", compiled=True)),
        ("`--device cuda --cudnn`", Program(device="cuda", cudnn=True)),
        ("`--device cuda --compile --cudnn`", Program(device="cuda", compiled=True, cudnn=True)),
        ("`--device cuda --tf32`", Program(device="cuda", tf32=True)),
        ("`--device cuda --dtype bfloat16`", Program(device="cuda", dtype="bfloat16")),
        ("`--device cuda --program fast`", find_program(FAST, "cuda")),
    ),
}


def clean_images(name: str, images: int, data_dir: Path | None) -> Images:
    """The first test images of a data set."""
    return next(load_dataset(name, data_dir).split("test").batches(images, "cpu")).images


def audited(model: str, program: Program, images: int, data_dir: Path | None) -> dict[str, Any]:
    """One audit as an object, with its settings and time."""
    defense = load(model, program.device)
    clean = clean_images(defense.card["data"]["name"], images, data_dir)
    about = {"model": model, "weights_sha256": defense.card["weights_sha256"], "images": images}
    begun = time.perf_counter()
    try:
        found = to_object(audit(defense, clean, program, lambda _: None), about)
    except Exception as error:  # a compiler's own errors have no common class; the other programs are still audited
        found = about | {"program": str(program), "passed": False, "cannot_run": first_line(error)}
    return found | {"seconds": round(time.perf_counter() - begun, 1), "versions": versions()}


def verdict(entry: dict[str, Any]) -> str:
    if "cannot_run" in entry:
        return f"cannot run ({entry['cannot_run']})"
    return "holds" if entry["passed"] else "violated"


def results_file(device: str) -> Path:
    return RESULTS / f"audits-{device}.json"


def stored_audits(device: str) -> dict[str, Any]:
    """The stored results of that device."""
    path = results_file(device)
    return read_json(path) if path.exists() else {"audits": []}


def table() -> Lines:
    """What the stored audits found; an audit of other weights than the shipped ones counts as not run."""
    lines: Lines = [("model", "machine", "program", "violations", "guard band to eager torch")]
    for device, programs in PROGRAMS.items():
        stored = stored_audits(device)
        for model in shipped_models():
            known = {
                entry["program"]: entry
                for entry in stored["audits"]
                if (entry["model"], entry["weights_sha256"]) == (model, card(model)["weights_sha256"])
            }
            for words, program in programs:
                entry = known.get(str(program))
                if entry is None:
                    lines.append((f"`{model}`", device, words, "not audited yet", ""))
                    continue
                if "cannot_run" in entry:
                    lines.append((f"`{model}`", stored["device"], words, "cannot run", ""))
                    continue
                failed = [check["name"] for check in entry["checks"] if not check["passed"]]
                cure = "" if entry["cure"] in (None, NO_CURE) else f"; cured by: {entry['cure']}"
                band = entry["guard_band"]["to_eager_torch"]
                told = ", ".join(failed) + cure if failed else "none"
                lines.append((f"`{model}`", stored["device"], words, told, "" if band == "none" else f"`{band}`"))
    return lines


def kept(device: str, facts: dict[str, Any]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The stored audits of the same call that passed, by model, weights and program."""
    stored = stored_audits(device)
    if any(facts.get(key) != value for key, value in stored.items() if key not in ("audits", "versions")):
        return {}
    held = [each for each in stored["audits"] if each["passed"] and same_libraries(each["versions"], facts["versions"])]
    return {(entry["model"], entry["weights_sha256"], entry["program"]): entry for entry in held}


def same_libraries(one: dict[str, str], other: dict[str, str]) -> bool:
    """Whether only our own version differs, if any."""
    return one | {"bagcert": ""} == other | {"bagcert": ""}


def filled(page: str) -> str:
    return put_table(page, "audits", table())


def main(
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    images: Annotated[int, typer.Option(help="clean images to start from", min=2)] = 4,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
    table_only: Annotated[bool, typer.Option("--table-only", help="run nothing")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="audits of the same weights that held")] = False,
) -> None:
    """Run the audits of one device and store what they found."""
    if not table_only:
        facts = provenance("benchmarks.audits", ["--device", device, "--images", images], torch.device(device))
        known: dict[tuple[str, str, str], dict[str, Any]] = kept(device, facts) if keep else {}
        found: dict[tuple[str, str, str], dict[str, Any]] = {}
        programs = {
            (model, card(model)["weights_sha256"], str(program)): program
            for _, program in PROGRAMS[device]
            for model in shipped_models()
        }
        for key, program in programs.items():
            found[key] = known.get(key) or audited(key[0], program, images, data_dir)
            print(f"{key[0]}, {program}: {verdict(found[key])}", flush=True)
            left = [known[each] for each in programs if each in known and each not in found]
            write_results(results_file(device), facts, {"audits": [*found.values(), *left]})  # as it may be stopped
    write_atomically(PAGE, filled(PAGE.read_text(encoding="utf-8")).encode())


if __name__ == "__main__":
    call(main)
