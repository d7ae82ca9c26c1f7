"""The shipped models side by side: what their cards say, and what was measured of them on named devices."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bagcert.files import read_json
from bagcert.program import EXACT
from bagcert.scorers.weights import WEIGHTS, outline, read_card, read_scorer_table
from bagcert.stored_models import shipped_models

MEASURED = "measured.json"  # beside the models' folders; `python -m studies zoo page` writes it
PATCHES = ("2x2", "5x5", "8x8", "10x10")
DASH = "–"
RECOVERY = "two-mask"  # of a model whose card lacks it: its own rule


@dataclass(frozen=True)
class Speed:
    """Network and rule, per image."""

    ms_per_image: float
    device: str
    command: str


@dataclass(frozen=True)
class ByProgram:
    """A model by one program: its time, and accuracies as in `Entry`."""

    speed: Speed | None
    recovery: Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Entry:
    """One model. Accuracies are shares of the test set, clean and certified, by patch."""

    name: str
    card: Mapping[str, Any]
    parameters: int
    size: int  # bytes of the stored weights
    recovery: Mapping[str, tuple[float, float]]
    detection: Mapping[str, tuple[float, float]]  # every alert counts as an error; empty: not measured
    cpu: Speed | None
    gpu: Speed | None
    programs: Mapping[str, ByProgram]  # by name, on a CPU

    @property
    def rule(self) -> str:
        """The rule of `recovery`."""
        known = {row["rule"] for row in self.card.get("test", [])}
        return RECOVERY if RECOVERY in known else str(self.card["rule"])

    @property
    def input(self) -> str:
        """Channels, height and width."""
        return "x".join(map(str, (self.card["scorer"]["network"]["channels"], *self.card["scorer"]["image_size"])))

    @property
    def patch(self) -> str:
        return str(self.card["patch"])

    @property
    def minutes(self) -> float | None:
        """Of training."""
        return self.card["seconds"] / 60 if "seconds" in self.card else None


def zoo() -> list[Entry]:
    """All shipped models."""
    folders = shipped_models()
    path = next(iter(folders.values())).parent / MEASURED
    measured = read_json(path) if path.is_file() else {}
    return [entry(name, folder, measured.get(name, {})) for name, folder in folders.items()]


def entry(name: str, folder: Path, measured: Mapping[str, Any]) -> Entry:
    """One model; what was measured of other weights than these does not count."""
    card = read_card(folder)
    known = measured if measured.get("weights_sha256") == card["weights_sha256"] else {}
    parameters = count_parameters(card)
    plain = Entry(name, card, parameters, (folder / WEIGHTS).stat().st_size, {}, {}, None, None, {})
    own = (row for row in card.get("test", []) if row["rule"] == plain.rule)
    recovery = {row["patch"]: (row["clean"], row["certified"]) for row in own}
    cpu = Speed(**known["cpu"]) if "cpu" in known else None
    return Entry(
        name=name,
        card=card,
        parameters=parameters,
        size=plain.size,
        recovery=recovery,
        detection=shares(known.get("detection", {})),
        cpu=cpu,
        gpu=Speed(**known["gpu"]) if "gpu" in known else None,
        programs={EXACT: ByProgram(cpu, recovery)}
        | {
            program: ByProgram(Speed(**found["cpu"]) if "cpu" in found else None, shares(found["recovery"]))
            for program, found in known.get("programs", {}).items()
        },
    )


def shares(stored: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Clean and certified accuracy, by patch."""
    return {patch: (row["clean"], row["certified"]) for patch, row in stored.items()}


def count_parameters(card: Mapping[str, Any]) -> int:
    """Of the network that a card describes."""
    return sum(each.numel() for each in outline(*read_scorer_table(card["scorer"])).parameters())


def by_key(entries: list[Entry], key: str) -> list[Entry]:
    """Sorted by one of `KEYS`: accuracies from the largest, costs from the smallest, what is not known last."""
    value, largest_first = KEYS[key]
    known = sorted((each for each in entries if value(each) is not None), key=value, reverse=largest_first)
    return known + [each for each in entries if value(each) is None]


def share(found: Mapping[str, tuple[float, float]], patch: str, which: int) -> float | None:
    return found[patch][which] if patch in found else None


# What the models can be sorted by: the value, and whether more is better. Accuracies are against the model's own patch.
KEYS: dict[str, tuple[Any, bool]] = {
    "name": (lambda each: each.name, False),
    "clean": (lambda each: share(each.recovery, each.patch, 0), True),
    "certified": (lambda each: share(each.recovery, each.patch, 1), True),
    "detection": (lambda each: share(each.detection, each.patch, 1), True),
    "parameters": (lambda each: each.parameters, False),
    "size": (lambda each: each.size, False),
    "cpu": (lambda each: each.cpu and each.cpu.ms_per_image, False),
    "gpu": (lambda each: each.gpu and each.gpu.ms_per_image, False),
    "minutes": (lambda each: each.minutes, False),
}
PROOF_HEADS = ("model", "clean %", *PATCHES)
PROGRAM_HEADS = ("model", "program", "CPU ms", "clean %", "certified %")
COST_HEADS = ("model", "input", "parameters", "MB", "CPU ms", "GPU ms", "minutes", "data", "licence")


def proof_cells(each: Entry) -> tuple[str, ...]:
    """Clean accuracy against the model's own patch; certified by recovery / by detection against each patch."""
    ways = (each.recovery, each.detection)
    both = (" / ".join(percent(share(found, patch, 1)) for found in ways) for patch in PATCHES)
    return (each.name, percent(share(each.recovery, each.patch, 0)), *both)


def cost_cells(each: Entry) -> tuple[str, ...]:
    """Size and time. A dash is what nobody has measured or said."""
    return (
        *(each.name, each.input, f"{each.parameters / 1e6:.1f} M", f"{each.size / 1e6:.1f}"),
        *(DASH if found is None else f"{found.ms_per_image:.3g}" for found in (each.cpu, each.gpu)),
        DASH if each.minutes is None else f"{each.minutes:.1f}",
        str(each.card.get("data", {}).get("name", DASH)),
        str(each.card.get("license", DASH)),
    )


def program_cells(each: Entry) -> list[tuple[str, ...]]:
    """A row for each program: time on a CPU, and accuracies against the model's own patch."""
    return [
        (
            *(each.name, name, DASH if found.speed is None else f"{found.speed.ms_per_image:.3g}"),
            *(percent(share(found.recovery, each.patch, which)) for which in (0, 1)),
        )
        for name, found in each.programs.items()
    ]


def percent(found: float | None) -> str:
    return DASH if found is None else f"{100 * found:.2f}"
