"""`bagcert certify`: for each image of a split, is its class proven safe from every such patch?"""

import json
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bagcert.cli.model_options import ModelArgument, OwnNetwork, ProgramOption, own_network
from bagcert.cli.output import continued, counted, rows_path, show_certified
from bagcert.cli.threat_options import ALERTS
from bagcert.data import Source
from bagcert.defense import Defense, load
from bagcert.distributed import joined_world
from bagcert.program import EXACT, find_device
from bagcert.rows.certified import Rows, read_rows, summary
from bagcert.rows.format import Evaluation
from bagcert.rows.header import describe, fitting_dataset
from bagcert.rows.resume import usual_path
from bagcert.rows.shards import cut
from bagcert.rows.thresholds import settled
from bagcert.rows.write import Plan, write_rows
from bagcert.rules import find_rule
from bagcert.threats.masks_file import read_masks


def certify(
    model: ModelArgument,
    data: Annotated[str | None, typer.Option(help="data set or folder; default: the model's training data")] = None,
    split: Annotated[str, typer.Option(help="train, validation, train+validation or test")] = "test",
    patch: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATCH", help="patch such as 5x5, 2.4% or 5x5,2x12; repeat for several; default: the model's"
        ),
    ] = None,
    masks: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE.npy", help="any sets of pixels, booleans (sets, height, width); repeat for several"),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(help="rule, certified with every patch; repeat for several; default: the model's"),
    ] = None,
    false_alerts: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help=f"{ALERTS}; it is on the model's card, or is chosen on the validation split and put there",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="number of images, the first ones of the split; default: all", min=1)
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="3/8", help="certify only this part of the images; `bagcert rows join` joins all parts"),
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="store scores and weakest placements with the rows")] = False,
    out: Annotated[
        Path | None, typer.Option(help="file for the rows, ending in .jsonl; continued if it exists")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object instead of a table")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="folder of the data sets")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N; default: the GPU if there is one")] = None,
    program: ProgramOption = EXACT,
    network: OwnNetwork = None,
) -> None:
    begun = time.monotonic()
    with joined_world() as world:
        defense = load(model, find_device(device, world.device), own_network(network), program)
        dataset = fitting_dataset(data, defense, data_dir)
        source = dataset.split(split)
        sets = [read_masks(path, defense.threat.image_size) for path in masks or []]
        patches = [*(patch or []), *map(str, sets)] or [str(defense.card["patch"])]
        named = {str(threat): threat for threat in sets}
        evaluations = wanted(patches, rule or [str(defense.card["rule"])])
        if false_alerts is not None:
            unseen = partial(fitting_split, defense, data_dir)
            evaluations = [
                settled(model, defense, entry, false_alerts, unseen, named.get(entry.patch)) for entry in evaluations
            ]
        images = min(limit or len(source), len(source))
        part = None if shard is None else cut(shard, images, defense.batch_size)
        plan = Plan(evaluations, images, scores, named, part)
        header = describe(model, defense, dataset, split)
        path = rows_path(out) if out is not None else usual_path({**header, **plan.header})
        quiet = not world.is_main
        with continued(path, quiet), counted("certifying", len(plan.part), quiet) as after_batch:
            write_rows(path, defense, plan, source, header, after_batch, world)
        if quiet:
            return
    rows = read_rows(path, shard=plan.shard is not None)
    seconds = time.monotonic() - begun
    if as_json:
        typer.echo(json.dumps(to_object(rows, seconds)))
    else:
        show_certified(rows, defense, seconds, plan.masks)


def fitting_split(defense: Defense, data_dir: Path | None) -> Source:
    """The validation split of the data that the model was trained on."""
    return fitting_dataset(None, defense, data_dir).split("validation")


def wanted(patches: list[str], rules: list[str]) -> list[Evaluation]:
    """Every rule with every patch, each pair once."""
    named = [find_rule(rule.strip()).written for rule in rules]
    return list(dict.fromkeys(Evaluation(patch.strip(), rule) for patch in patches for rule in named))


def to_object(rows: Rows, seconds: float) -> dict[str, object]:
    """What `--json` prints. Accuracies are fractions; intervals are 95 % (Wilson)."""
    results = summary(rows)
    return {
        "model": rows.model,
        "data": rows.header["data"]["name"],
        "images": len(rows.labels),
        "clean_accuracy": results[0]["clean_accuracy"],
        "results": results,
        "seconds": round(seconds, 2),
        "device": rows.header["device"],
        "arithmetic": rows.header["arithmetic"],
    }
