"""Several answers from score maps: the k best classes of the shipped models, and pictures of four tiles.

    python -m studies labels top cifar10-small      (all test images; an hour and more on two cores)
    python -m studies labels trial labels           (which classes are in the picture? minutes on a GPU)
    python -m studies labels trial segmentation     (which class has each pixel? the same)
    python -m studies labels page                   (docs/several-answers.md from studies/results/labels/)

A call that was stopped goes on where it was.

A picture is four images of CIFAR-10, two by two. Training pictures are made of training images, anew in every epoch.
Test pictures are made of test images, four by four in their order. Thresholds of labels are chosen on pictures of the
validation split, which training does not see.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from bagcert.data import ArrayDataset, load_dataset
from bagcert.defense import load
from bagcert.errors import UsageError, unknown_name
from bagcert.files import write_atomically
from bagcert.program import EXACT, usual_device
from bagcert.report.tables import percent
from bagcert.scorers.weights import CONFIG
from studies.common.commands import ProgramOption
from studies.common.results import RESULTS, ROOT, provenance, write_results
from studies.common.subject import Subject
from studies.common.tables import Lines, put_table
from studies.labels.measure import measure
from studies.labels.tasks import TASKS
from studies.labels.top_sets import PATCHES, attack_top, measure_top
from studies.labels.training import Settings, train

FOLDER = RESULTS / "labels"
PAGE = ROOT / "docs" / "several-answers.md"
Out = Annotated[Path, typer.Option(help="the folder of results")]
DataDir = Annotated[Path | None, typer.Option(help="where data sets are kept")]
Attacked = Annotated[int, typer.Option(help="how many are attacked for each patch; the first ones", min=0)]
AttackSteps = Annotated[int, typer.Option(help="of each attack", min=4)]


def top(
    model: Annotated[str, typer.Argument(help="a shipped model or a run folder")],
    patches: Annotated[list[str] | None, typer.Option("--patch", help="one or several; default: all four")] = None,
    images: Annotated[int, typer.Option(help="the first ones of the test set", min=1)] = 10_000,
    attacked: Attacked = 400,
    attack_steps: AttackSteps = 40,
    program: ProgramOption = EXACT,
    out: Out = FOLDER,
    data_dir: DataDir = None,
) -> None:
    """Sets of the k best classes of one model, certified and attacked."""
    subject = Subject.find(model, model, data_dir, program)
    count, name, wanted = min(images, len(subject.source)), f"top-{Path(model).name}", patches or list(PATCHES)
    weights = subject.header["weights_sha256"]
    part = Path("runs") / "-".join([name, weights[:8], program, *wanted, str(count)])  # of this very call
    rows = out / f"{name}.jsonl.gz"
    found = measure_top(subject, wanted, count, part, rows)
    for patch in wanted if attacked else []:
        found[patch]["attack"] = attack_top(subject.defense.against(patch), subject, attacked, attack_steps)
    options = [model, *(word for patch in wanted for word in ("--patch", patch)), "--images", count]
    options += ["--program", program, "--attacked", attacked, "--attack-steps", attack_steps]
    head = provenance("studies labels top", options, subject.defense.device)
    facts = {"arithmetic": subject.header["arithmetic"], "weights_sha256": weights}
    write_results(out / f"{name}.json", {**head, **facts, "rows": rows.name, "images": count}, {"patches": found})


def trial(
    task: Annotated[str, typer.Argument(help="labels or segmentation")],
    run: Annotated[Path | None, typer.Option(help="folder of the network; trained unless it is there")] = None,
    start_from: Annotated[str | None, typer.Option(help="begin with a model of single tiles, and its network")] = None,
    narrow: Annotated[int, typer.Option(help="features of the first layers", min=1)] = Settings.widths[0],
    wide: Annotated[int, typer.Option(help="features of the others", min=1)] = Settings.widths[1],
    lr: Annotated[float, typer.Option(help="learning rate of the convolutions")] = Settings.lr,
    batch: Annotated[int, typer.Option(help="pictures of a training step", min=1)] = Settings.batch,
    steps: Annotated[int, typer.Option(help="of training", min=1)] = Settings.steps,
    seconds: Annotated[float | None, typer.Option(help="of training, if these pass before its steps", min=1)] = None,
    pictures: Annotated[int, typer.Option(help="of the test split; the first ones", min=1)] = 2500,
    attacked: Attacked = 200,
    attack_steps: AttackSteps = 40,
    seed: int = Settings.seed,
    data: Annotated[str, typer.Option(help="the data set of the tiles")] = "cifar10",
    out: Out = FOLDER,
    data_dir: DataDir = None,
) -> None:
    """Train a network on pictures of four tiles, certify and attack it."""
    if task not in TASKS:
        raise unknown_name("task", task, TASKS)
    dataset = load_dataset(data, data_dir)
    if not isinstance(dataset, ArrayDataset):
        raise UsageError(f"The tiles of {data} are not all of one size. Use cifar10.")
    device = usual_device()
    wanted, folder = TASKS[task](), run or Path("runs") / f"tiles-{task}"
    if not (folder / CONFIG).exists():
        train(wanted, dataset, Settings((narrow, wide), start_from, lr, batch, steps, seconds, seed), device, folder)
    defense = replace(load(folder, device), batch_size=min(50, pictures))
    rows = out / f"{task}.jsonl.gz"
    found = measure(wanted, defense, dataset, pictures, attacked, attack_steps, rows)
    network = {"start-from": start_from} if start_from else {"narrow": narrow, "wide": wide}
    options = {**network, "lr": lr, "batch": batch, "steps": defense.card["steps"], "seed": seed, "pictures": pictures}
    options |= {"attacked": attacked, "attack-steps": attack_steps, "data": data}
    words = [task, *(str(word) for key, value in options.items() for word in (f"--{key}", value))]
    head = provenance("studies labels trial", words, device, seed)
    facts = {"arithmetic": str(defense.program), "weights_sha256": defense.card["weights_sha256"], "rows": rows.name}
    facts["training_seconds"] = defense.card["seconds"]
    write_results(out / f"{task}.json", {**head, **facts}, found)


def read_result(folder: Path, name: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return result


def top_lines(folder: Path) -> Lines:
    """Label in the set / proven to stay, mean size of a set."""
    files = sorted(folder.glob("top-*.json"))
    results = {path.stem.removeprefix("top-"): read_result(folder, path.stem) for path in files}
    numbers = [best for best in next(iter(next(iter(results.values()))["patches"].values())) if best != "attack"]
    lines: Lines = [
        ("model", "patch", *(f"k = {best}" for best in numbers), *(f"size, k = {best}" for best in numbers))
    ]
    for model, result in results.items():
        for patch, found in result["patches"].items():
            shares = (f"{percent(found[best]['in_set'])} / {percent(found[best]['proven'])}" for best in numbers)
            sizes = (f"{found[best]['mean_size']:.2f} (≤ {found[best]['largest_size']})" for best in numbers)
            lines.append((f"`{model}`", patch, *shares, *sizes))
    return lines


def label_lines(folder: Path) -> Lines:
    """Wrong labels per picture, and pictures whose labels are all right."""
    result = read_result(folder, "labels")
    lines: Lines = [("patch", "wrong labels", "attacked", "certified", "all right %", "certified all right %")]
    for patch, found in result["patches"].items():
        means = (f"{found['wrong']:.3f}", f"{found['of_these']['attacked']:.3f}", f"{found['most_wrong']:.3f}")
        lines.append((patch, *means, percent(found["all_right"]), percent(found["all_right_certified"])))
    usual = f"{result['majority_wrong']:.3f}"
    lines.append(("majority", usual, usual, usual, "0.00", "0.00"))
    return lines


def pixel_lines(folder: Path) -> Lines:
    """Right pixels in percent."""
    result = read_result(folder, "segmentation")

    def right(wrong: float) -> str:
        return percent(1 - wrong / result["of"])

    lines: Lines = [("patch", "right pixels %", "attacked %", "certified %")]
    for patch, found in result["patches"].items():
        lines.append((patch, *map(right, (found["wrong"], found["of_these"]["attacked"], found["most_wrong"]))))
    lines.append(("majority", *[right(result["majority_wrong"])] * 3))
    return lines


def attack_lines(folder: Path) -> Lines:
    """Attacks on sets of classes: how many labels were driven out, and none of the proven ones."""
    lines: Lines = [("model", "k", "patch", "attacked", "of these proven", "driven out", "of these proven")]
    for path in sorted(folder.glob("top-*.json")):
        for patch, found in read_result(folder, path.stem)["patches"].items():
            counts = (str(found["attack"][key]) for key in ("best", "attacked", "proven", "out", "broken"))
            best, *others = counts
            lines.append((f"`{path.stem.removeprefix('top-')}`", best, patch, *others))
    return lines


TABLES = {"top": top_lines, "attacks": attack_lines, "labels": label_lines, "segmentation": pixel_lines}


def filled(text: str, folder: Path) -> str:
    """The page with the table of everything that has been measured; a task that has not been has no marks on it."""
    for name, lines in TABLES.items():
        if name not in TASKS or (folder / f"{name}.json").exists():
            text = put_table(text, name, lines(folder))
    return text


def page(out: Out = FOLDER) -> None:
    """Fill the tables of docs/several-answers.md."""
    write_atomically(PAGE, filled(PAGE.read_text(encoding="utf-8"), out).encode())
