"""Run the units of the plan, store what each found at once, and add up what all sittings found."""

import hashlib
import io
import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import bagcert
from bagcert.data import load_dataset
from bagcert.errors import UsageError
from bagcert.files import write_atomically
from bagcert.program import device_name, versions
from bagcert.rules import IntegerScores, read_scores
from bagcert.stored_models import card, shipped_models
from bagcert.tensors import Images
from benchmarks.million.patches import STEP_SIZE, Painted, cheap, descents
from benchmarks.million.plan import CHEAP, CONTROL, DESCENTS, EACH, LARGEST, Case, Unit, all_units, planned, rules_of
from benchmarks.million.world import Slice, World
from studies.common.commands import choose

KEPT = 16  # patches that won, of each control and kind
Record = dict[str, Any]


@dataclass
class Sitting:
    """What one process holds: models, slices and worlds that it has met, and where it stores what it finds."""

    folder: Path
    device: torch.device
    steps: int
    share: float  # of each unit, for a rehearsal
    data_dir: Path | None = None
    images: int = 1000  # test images of a slice
    streams: int = 4  # batches of 16 leave most of a large GPU idle, so several run at once
    models: dict[str, bagcert.Defense] = field(default_factory=dict)
    slices: dict[tuple[str, int], Slice] = field(default_factory=dict)
    worlds: dict[tuple[Case, int], World] = field(default_factory=dict)

    def shared(self, count: int) -> int:
        return max(4, round(count * self.share))

    @property
    def attack(self) -> Record:
        """What must be the same in all sittings."""
        return {"steps": self.steps, "step_size": STEP_SIZE, "share": self.share}

    def facts(self, unit: Unit) -> Record:
        """By what a unit was computed."""
        weights = card(unit.case.model)["weights_sha256"]
        program = {"device": device_name(self.device), "torch": versions()["torch"]}
        return {"weights_sha256": weights, "attack": self.attack, **program}

    def model(self, name: str) -> bagcert.Defense:
        if name not in self.models:
            self.models[name] = bagcert.load(name, self.device)
        return self.models[name]

    def slice(self, model: str, number: int) -> Slice:
        if (model, number) not in self.slices:
            defense, count = self.model(model), max(32, round(self.images * self.share))
            source = load_dataset(defense.card["data"]["name"], self.data_dir).split("test")
            batch = next(source.batches(count, "cpu", start=number))
            images = batch.images.to(self.device)
            scores = self.scores(defense, images)
            if not torch.equal(scores.values[:64], defense.scores(images[:64]).values):
                print("one stream alone: several do not give the same scores", flush=True)
                self.streams, scores = 1, defense.scores(images)
            self.slices[model, number] = Slice(images, batch.labels.to(self.device), batch.index, scores)
        return self.slices[model, number]

    def world(self, case: Case, number: int) -> World:
        if (case, number) not in self.worlds:
            defense = self.model(case.model).against(case.patch, case.rule)
            self.worlds[case, number] = World(defense, self.slice(case.model, number))
        return self.worlds[case, number]

    def rivals(self, case: Case, number: int) -> dict[str, World]:
        """The worlds of all rules of the case's model, against its patch: one pass gives an answer to each."""
        rules = rules_of(case.model, case.patch)
        return {rule: self.world(Case(case.model, case.patch, rule), number) for rule in rules}

    def won(self, case: Case, number: int) -> Images:
        """The patches that changed the class of unproven images of this slice, whatever the rule.

        They are not kept with what units found: the controls make them again where they are missing.
        """
        cases = (Case(case.model, case.patch, rule) for rule in rules_of(case.model, case.patch))
        units = [Unit(each, CONTROL, number, number) for each in cases]
        for unit in units:
            if not self.won_path(unit).exists():
                run_unit(self, unit)
        found = [patches for patches in map(np.load, map(self.won_path, units)) if len(patches)]
        return torch.from_numpy(np.concatenate(found)) if found else torch.empty(0)

    def won_path(self, unit: Unit) -> Path:
        return self.folder / f"won-{unit.name.replace('/', '-').replace(':', '-')}.npy"

    def scores(self, defense: bagcert.Defense, images: Images) -> IntegerScores:
        """What `defense.scores` returns, by the same program, with several of its batches on the GPU at once."""
        if self.device.type != "cuda" or self.streams == 1:
            return defense.scores(images)
        parts = images.split(16 * defense.batch_size)  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream() for _ in range(self.streams)]  # type: ignore[no-untyped-call]

        def scored(number: int) -> Tensor:
            with torch.cuda.stream(streams[number % self.streams]):
                return defense.scores(parts[number]).values

        with ThreadPoolExecutor(self.streams) as pool:
            found = list(pool.map(scored, range(len(parts))))
        torch.cuda.synchronize()
        return read_scores(torch.cat(found), defense.scorer.step.bounds)


def run_unit(sitting: Sitting, unit: Unit) -> Record:
    """Attack, ask the certified program about every attacked image, and say what came of it."""
    begun = time.perf_counter()
    world, count = sitting.world(unit.case, unit.slice), sitting.shared(EACH[unit.kind])
    draw = torch.Generator().manual_seed(unit.seed)
    record: Record = {"unit": unit.name, "seed": unit.seed, "slice": unit.slice, **sitting.facts(unit)}
    if unit.kind == CONTROL:
        record |= control(sitting, unit, world, count, draw)
    elif not world.proven.any():
        record |= {"pictures": 0, "verdicts": {}, "broken": [], "sha256": ""}
    elif unit.kind == DESCENTS:
        record |= attack(sitting, unit, descents(world, world.proven, count, sitting.steps, draw))
    else:
        record |= attack(sitting, unit, cheap(world, world.proven, count, sitting.won(unit.case, unit.slice), draw))
    return record | {"seconds": round(time.perf_counter() - begun, 2)}


def attack(sitting: Sitting, unit: Unit, painted: Painted) -> Record:
    """Every rule that has a proof of the clean image must answer as before; the case's own has one of each."""
    seen, verdicts, broken = sitting.slice(unit.case.model, unit.slice), {}, []
    scores = sitting.scores(sitting.model(unit.case.model), painted.whole)
    for rule, world in sitting.rivals(unit.case, unit.slice).items():
        proven = world.proven[painted.image].nonzero().flatten()
        verdicts[rule] = len(proven)
        if len(proven):
            fooled = proven[world.broken(scores.part(proven), painted.image[proven])]
            index = seen.index[painted.image[fooled].cpu()].tolist()
            broken += [[rule, *found] for found in zip(index, painted.corner[fooled].tolist(), strict=True)]
    return {"pictures": len(painted.image), "verdicts": verdicts, "broken": broken, "sha256": digest(painted, scores)}


def control(sitting: Sitting, unit: Unit, world: World, count: int, draw: torch.Generator) -> Record:
    """The same attacks on images that are answered rightly and not proven, and the patches that won."""
    tried, changed, won, digests = Counter[str](), Counter[str](), [], []
    if world.open.any():
        none = torch.empty(0)
        for painted in (
            descents(world, world.open, count, sitting.steps, draw),
            cheap(world, world.open, count, none, draw),
        ):
            scores = sitting.scores(world.defense, painted.whole)
            fooled = world.broken(scores, painted.image)
            tried.update(painted.content)
            changed.update(name for name, done in zip(painted.content, fooled.tolist(), strict=True) if done)
            won.append(painted.patch[fooled][:KEPT].cpu())
            digests.append(digest(painted, scores))
    buffer = io.BytesIO()
    np.save(buffer, torch.cat(won).numpy() if won else np.empty(0))
    write_atomically(sitting.won_path(unit), buffer.getvalue())
    return {"tried": dict(tried), "changed": dict(changed), "sha256": "-".join(digests)}


def digest(painted: Painted, scores: IntegerScores) -> str:
    """Of what was painted where, and of the sums of the scores that came of it."""
    found = hashlib.sha256()
    for part in (painted.image, painted.corner, painted.patch, scores.values.sum(dim=(2, 3))):
        found.update(part.cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def stored(sitting: Sitting) -> dict[str, Record]:
    """What all processes and sittings have found so far, by unit; neither a torn last line nor other weights count."""
    found: dict[str, Record] = {}
    for path in sorted(sitting.folder.glob("units-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if record["attack"] != sitting.attack:
                raise UsageError(f"{path} holds units of other steps or another share. Choose another --store.")
            if record["weights_sha256"] == card(record["unit"].split("/")[1])["weights_sha256"]:
                found[record["unit"]] = record
    return found


def summary(records: Iterable[Record]) -> Record:
    """All units together, and case by case."""
    cases: dict[tuple[str, ...], Record] = {}
    kinds: dict[str, Counter[str]] = {kind: Counter() for kind in (DESCENTS, CHEAP)}
    largest, broken, names = 0, [], []
    for record in sorted(records, key=lambda each: str(each["unit"])):
        kind, model, patch, rule, _ = record["unit"].split("/")
        names.append(f"{record['unit']} {record['sha256']}")
        own = cases.setdefault((model, patch, rule), new_case(model, patch, rule))
        if kind == CONTROL:
            for key in ("tried", "changed"):
                own[key] = dict(Counter(own[key]) + Counter(record[key]))
            continue
        own[kind] += record["pictures"]
        kinds[kind].update(pictures=record["pictures"], verdicts=sum(record["verdicts"].values()))
        largest += record["pictures"] if (kind, model) == (DESCENTS, LARGEST) else 0
        broken += [[record["unit"], *each] for each in record["broken"]]
        for by, count in record["verdicts"].items():
            cases.setdefault((model, patch, by), new_case(model, patch, by))["verdicts"] += count
    return {
        "pictures": sum(kind["pictures"] for kind in kinds.values()),
        "verdicts": sum(kind["verdicts"] for kind in kinds.values()),
        **{kind: dict(counts) for kind, counts in kinds.items()},
        "descents_on_the_largest_model": largest,
        "broken": broken,
        "units": len(names),
        "units_sha256": hashlib.sha256("\n".join(names).encode()).hexdigest(),
        "cases": list(cases.values()),
    }


def new_case(model: str, patch: str, rule: str) -> Record:
    zeros = {DESCENTS: 0, CHEAP: 0, "verdicts": 0, "tried": {}, "changed": {}}
    return {"model": model, "patch": patch, "rule": rule, **zeros}


def run(sitting: Sitting, parts: Sequence[int], minutes: float, only: Sequence[str] = ()) -> Record:
    """Run what no sitting has run yet, `only` on some models if any are named; what all sittings have found."""
    models = planned(shipped_models())
    wanted, plan = choose("model", only, models), all_units(models)
    sitting.folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * minutes
    done = stored(sitting)
    chosen = [unit for unit in plan if unit.slice in parts and unit.case.model in wanted]
    units = [unit for unit in chosen if unit.name not in done]
    path = sitting.folder / f"units-{'-'.join(map(str, parts))}-{time.time_ns()}.jsonl"
    with path.open("x", encoding="utf-8") as file:
        for number, unit in enumerate(units, start=1):
            if time.monotonic() > end:
                break
            record = run_unit(sitting, unit)
            file.write(json.dumps(record) + "\n")
            file.flush()
            print(f"{number}/{len(units)} {json.dumps(record)}", flush=True)
    found = stored(sitting)
    weights = {model: card(model)["weights_sha256"] for model in models}
    left = len([unit for unit in plan if unit.name not in found])
    facts = {"weights_sha256": weights, "attack": sitting.attack, "units_left": left}
    return {**facts, "devices": sorted({each["device"] for each in found.values()}), **summary(found.values())}
