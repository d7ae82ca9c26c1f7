"""Attack certified images many times: no class may change.

    python -m benchmarks.soundness cifar10-small               (12,000 runs, for a GPU)
    python -m benchmarks.soundness cifar10-small --runs 200 --steps 20 --out /tmp/x.json    (a first look on two cores)

    python -m benchmarks.soundness cifar10-small --rule detect     (detectable images: the attack must avoid the alert)

    python -m benchmarks.soundness --million --steps 40            (a million patches on the shipped models, for a GPU)

Certified test images of a model, several patch shapes and rules. The network's own scores go through `two-mask`, its
votes (logit at least 0) through every rule; a network that votes has no other scores. Each image is attacked at its
weakest placements, from its own pixels and from random ones. A run is one descent. If a certified class changes, the
exit code is 1.

`--million` paints proven images of all shipped models, under every rule on their cards, with descents and with patches
that cost nothing (`benchmarks.million`). It can be stopped and called again, also in several processes, each with its
--part; --minutes ends it in time, and --only leaves out the other models. What each unit found is stored under
results/million.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

import bagcert
from bagcert.attacks import AttackSettings
from bagcert.data import load_dataset
from bagcert.program import usual_device
from bagcert.rules import find_rule, rules_for
from bagcert.scorers.residual import ResidualScorer
from benchmarks.million.plan import SLICES
from benchmarks.million.sitting import Sitting, run
from studies.common.commands import call
from studies.common.descents import attack_until
from studies.common.results import BENCHMARKS, provenance, write_results

PATCHES = ("2x2", "5x5", "8x8", "1x24", "24x1")


def voting(defense: bagcert.Defense) -> bagcert.Defense:
    """The same weights with votes as scores, so that rules that need tight bounds can certify."""
    scorer = defense.scorer
    assert isinstance(scorer, ResidualScorer)
    votes = replace(scorer.config, step="heaviside").build(scorer.image_size, (0.0,), (1.0,))
    votes.load_state_dict(scorer.state_dict())
    votes.to(next(scorer.parameters()).device).eval()
    return bagcert.Defense.build(votes, "two-mask", defense.threat, defense.classes)


def cases(
    plain: bagcert.Defense, patches: list[str], own: bool = False, rule: str | None = None
) -> list[tuple[str, str, bagcert.Defense, str]]:
    """Patch, kind of scores, network and rule of each case, none twice. `own`: no votes of a network of logits.

    A `rule` is tried on the model's own scores alone.
    """
    if rule is not None:
        return [(patch, "scores", plain, find_rule(rule).written) for patch in patches]
    logits = plain.scorer.step.bounds != (0, 1)
    found = [(patch, "scores", plain, "two-mask") for patch in patches] if logits else []
    if own and logits:
        return found
    votes = voting(plain)
    return found + [(patch, "votes", votes, rule) for patch in patches for rule in rules_for(views=False)]


def main(
    model: Annotated[str, typer.Argument(help="a shipped model or a run folder")] = "cifar10-small",
    runs: Annotated[int, typer.Option(help="descents in all", min=1)] = 12_000,
    steps: Annotated[int, typer.Option(help="of each descent")] = AttackSettings.steps,
    patch: Annotated[list[str] | None, typer.Option(help="several shapes if none is given")] = None,
    own: Annotated[bool, typer.Option("--own", help="the model's own scores only, as it is shipped")] = False,
    rule: Annotated[str | None, typer.Option(help="this one only, on the model's own scores, such as detect")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
    out: Annotated[Path | None, typer.Option(help="the counts, as JSON; results/soundness-MODEL.json")] = None,
    million: Annotated[bool, typer.Option("--million", help="all shipped models, in units that are stored")] = False,
    store: Annotated[Path, typer.Option(help="where the units of a million are kept")] = BENCHMARKS / "million",
    part: Annotated[int | None, typer.Option(help="of the million: 1, 2 or 3", min=1, max=SLICES)] = None,
    minutes: Annotated[float, typer.Option(help="after which a million stops, to go on later")] = 60.0,
    only: Annotated[list[str] | None, typer.Option(help="of the million: units of this model alone")] = None,
    share: Annotated[float, typer.Option(help="of each unit of a million, for a rehearsal", max=1.0)] = 1.0,
) -> None:
    """Attack certified images and count the classes that change."""
    if million:
        sitting = Sitting(store, usual_device(), steps, share, data_dir)
        units = run(sitting, range(SLICES) if part is None else [part - 1], minutes, only or ())
        counts = f"{units['pictures']:,} attacked pictures, {units['verdicts']:,} verdicts"
        print(f"{counts}, {len(units['broken'])} broke a proof; {units['units_left']} units left")
        head = provenance("benchmarks.soundness", ["--million", "--steps", steps], sitting.device)
        write_results(out or BENCHMARKS / "million.json", head, units)
        raise typer.Exit(1 if units["broken"] else 0)
    plain = bagcert.load(model, usual_device())
    source = load_dataset(plain.card["data"]["name"], data_dir).split("test")
    settings = AttackSettings(steps=steps, places=4, restarts=2)
    wanted = cases(plain, patch or list(PATCHES), own, rule)
    table: list[dict[str, Any]] = []
    for place, (shape, kind, defense, by) in enumerate(wanted):
        left = runs - sum(row["runs"] for row in table)  # what one case could not use goes to the others
        facing = defense.against(shape, by)
        found = attack_until(facing, source, facing.rule.proven, settings, -(-left // (len(wanted) - place)))
        table.append({"patch": shape, "scores": kind, "rule": by, **found.to_dict("flips")})
        print(json.dumps(table[-1]), flush=True)
    flips = sum(len(row["flips"]) for row in table)
    settled = ["--runs", runs, "--steps", steps, *(f"--patch={shape}" for shape in patch or [])]
    settled += [*(["--own"] if own else []), *([f"--rule={rule}"] if rule else [])]
    result = {
        **plain.program.describe(),
        "weights_sha256": plain.card["weights_sha256"],
        "attack": asdict(settings),
        "runs": sum(row["runs"] for row in table),
        "flips": flips,
        "cases": table,
    }
    ending = f"-{rule.replace(':', '-')}" if rule else "-own" if own else ""
    out = out or BENCHMARKS / f"soundness-{Path(model).name}{ending}.json"
    print(f"{result['runs']} attacks on proven images, {flips} broke a proof")
    write_results(out, provenance("benchmarks.soundness", [model, *settled], plain.device, settings.seed), result)
    if flips:
        raise typer.Exit(1)


if __name__ == "__main__":
    call(main)
