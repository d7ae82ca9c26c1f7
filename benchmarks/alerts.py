"""Attack what is detectable many times: no class may change without an alert.

    python -m benchmarks.alerts cifar10-small        (10,000 runs, for a GPU)
    python -m benchmarks.alerts runs/digits --patch 1x1 --patch 2x2 --two '2*1x1' --runs 20000 --places 8    (two cores)

Detectable test images, by `detect` and by the alert of `two-mask`, with t = 0 and with the threshold for 1 % false
alerts, from the card or else from the validation split. An attack wins if it changes the class and avoids the alert. It
starts at the weakest placements, from the image's own pixels and from random ones. A run is one descent. If an attack
wins, the exit code is 1.

The control shows that the attack can win: the same attack on images that are neither detectable nor alerted.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from torch import Tensor

import bagcert
from bagcert import Certificate
from bagcert.attacks import AttackSettings
from bagcert.data import Source, load_dataset
from bagcert.program import EXACT, usual_device
from bagcert.rows.thresholds import choose, find_threshold, read_rate
from studies.common.commands import ProgramOption, call
from studies.common.descents import attack_until
from studies.common.results import BENCHMARKS, provenance, write_results

PATCHES = ("2x2", "5x5", "8x8")
TWO = ("2*2x2",)  # patches at once, with the threshold for one of them
RATE = "1%"


def cases(plain: bagcert.Defense, patches: list[str], two: list[str], validation: Source) -> list[tuple[str, str]]:
    """The threat and the rule of each case: t = 0 and the threshold for RATE; of two patches at once, this alone."""

    def settled(patch: str, rule: str) -> str:
        facing = plain.against(patch, rule)
        found = find_threshold(facing, RATE)
        above = choose(facing, validation, read_rate(RATE))[0] if found is None else found.above
        return f"{rule}:{above}"

    one = [
        (patch, each) for patch in patches for each in ("detect", settled(patch, "detect"), settled(patch, "two-mask"))
    ]
    return one + [(patch, settled(patch.partition("*")[2], "detect")) for patch in two]


def detectable(certificate: Certificate) -> Tensor:
    assert certificate.detectable is not None
    return certificate.detectable


def unprotected(certificate: Certificate) -> Tensor:
    """No alert, and nothing proven."""
    assert certificate.alert is not None
    return ~(certificate.alert | certificate.certified | detectable(certificate))


def main(
    model: Annotated[str, typer.Argument(help="a shipped model or a run folder")] = "cifar10-small",
    runs: Annotated[int, typer.Option(help="descents on detectable images in all", min=1)] = 10_000,
    control: Annotated[int, typer.Option(help="images of each case's control", min=1)] = 32,
    steps: Annotated[int, typer.Option(help="of each descent")] = 50,
    step_size: Annotated[float, typer.Option(help="of each descent")] = AttackSettings.step_size,
    places: Annotated[int, typer.Option(help="the weakest ones of each image")] = 4,
    patch: Annotated[list[str] | None, typer.Option(help="several if none is given")] = None,
    two: Annotated[list[str] | None, typer.Option(help="two at once, with the threshold for one")] = None,
    program: ProgramOption = EXACT,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
    out: Annotated[Path | None, typer.Option(help="the counts, as JSON; results/alerts-MODEL.json")] = None,
) -> None:
    """Attack detectable images and count the answers that change without an alert."""
    plain = bagcert.load(model, usual_device(), program=program)
    dataset = load_dataset(plain.card["data"]["name"], data_dir)
    source = dataset.split("test")
    settings = AttackSettings(steps=steps, step_size=step_size, places=places, restarts=2)
    wanted = cases(plain, patch or list(PATCHES), two or list(TWO), dataset.split("validation"))
    options = [model, "--runs", runs, "--control", control, "--steps", steps, "--step-size", step_size]
    options += [
        "--places",
        places,
        "--program",
        program,
        *(f"--patch={each}" for each in patch or []),
        *(f"--two={each}" for each in two or []),
    ]
    head = {
        **provenance("benchmarks.alerts", options, plain.device, settings.seed),
        **plain.program.describe(),
        "weights_sha256": plain.card["weights_sha256"],
        "attack": asdict(settings),
    }
    table, counts = list[dict[str, Any]](), {"runs": 0, "fooled": 0}
    for place, (threat, rule) in enumerate(wanted):
        defense = plain.against(threat, rule)
        share = -(-(runs - counts["runs"]) // (len(wanted) - place))  # what one case leaves goes to the others
        safe = attack_until(defense, source, detectable, settings, share)
        others = attack_until(defense, source, unprotected, settings, runs, control) if ":" in rule else None
        told = {"detectable": safe.to_dict("fooled"), "control": None if others is None else others.to_dict("fooled")}
        table.append({"patch": threat, "rule": rule, **told})
        print(json.dumps(table[-1]), flush=True)
        counts = {"runs": counts["runs"] + safe.runs, "fooled": counts["fooled"] + len(safe.changed)}
        path = out or BENCHMARKS / f"alerts-{Path(model).name}.json"
        write_results(path, head, {**counts, "cases": table})  # after each, in case of an interruption
    print(f"{counts['runs']} attacks on detectable images, {counts['fooled']} changed the class without an alert")
    if counts["fooled"]:
        raise typer.Exit(1)


if __name__ == "__main__":
    call(main)
