"""A model to the Hugging Face Hub: weights, card, rows if there are any, and a model card that the Hub reads."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bagcert.errors import UsageError, need_packages
from bagcert.files import sha256
from bagcert.hub import NEEDED, PREFIX, hub_errors, need_repository
from bagcert.scorers.weights import CONFIG, WEIGHTS, load_scorer, read_card, read_scorer_table
from bagcert.stored_models import model_folder

ROWS = ("rows.jsonl.gz", "rows.meta.json")  # behind the accuracies of a shipped model
# What the Hub calls the data sets that we know by name.
HUB_DATA = {"cifar10": "uoft-cs/cifar10", "fashion-mnist": "zalando-datasets/fashion_mnist"}
TAGS = ["bagcert", "certified-robustness", "adversarial-patch"]


def push(model: str | Path, repository: str, license: str | None = None, private: bool = False) -> str:
    """Upload a model in one commit, and return that commit. The repository is made if it does not exist."""
    need_repository(repository)
    need_packages("bagcert push", NEEDED)
    files = contents(model_folder(model), repository, license)
    from huggingface_hub import CommitOperationAdd, HfApi

    with hub_errors(repository, "main"):
        hub = HfApi(library_name="bagcert")
        hub.create_repo(repository, private=private or None, exist_ok=True)
        added = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=content) for name, content in files.items()]
        return str(hub.create_commit(repository, added, commit_message="A model of bagcert").oid)


def contents(folder: Path, repository: str, license: str | None) -> dict[str, bytes]:
    """The files to upload, checked: what nobody could load is refused."""
    if read_scorer_table(read_card(folder).get("scorer"))[0].brings_weights:
        raise UsageError(
            f"{folder} is a defense around a network of your own, whose code no card holds: nobody could load it from "
            "the Hub. Share the folder together with the code."
        )
    weights, card = (folder / WEIGHTS).read_bytes(), without_paths(load_scorer(folder)[1])
    if sha256(weights) != card["weights_sha256"]:
        raise UsageError(f"The weights in {folder} have just changed. Push again.")
    files = {CONFIG: (json.dumps(card, indent=2, ensure_ascii=False) + "\n").encode(), WEIGHTS: weights}
    files |= {name: (folder / name).read_bytes() for name in ROWS if (folder / name).is_file()}
    return {**files, "README.md": model_card(card, repository, license).encode()}


def without_paths(card: Mapping[str, Any]) -> dict[str, Any]:
    """The card with the name of the data folder wherever it has its path, which is nobody's business."""
    path = str(card.get("data", {}).get("name", ""))
    name = re.split(r"[/\\]", path.rstrip("/\\"))[-1]
    if not name:
        return dict(card)
    found: dict[str, Any] = json.loads(json.dumps(card).replace(json.dumps(path)[1:-1], json.dumps(name)[1:-1]))
    return found


def results(card: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The accuracies of the card with their split: those of the test set, else the one of the validation split."""
    if "test" in card:
        return [{"split": "test", **row} for row in card["test"]]
    own = {"split": "validation", "patch": card["patch"], "rule": card["rule"]}
    return [{**own, **card["validation"]}] if "validation" in card else []


def model_card(card: Mapping[str, Any], repository: str, license: str | None) -> str:
    """README.md for the Hub: metadata in YAML, how to load it, what it proves, how it was made."""
    return f"---\n{metadata(card, repository, license)}\n---\n\n{page(card, repository)}"


def metadata(card: Mapping[str, Any], repository: str, license: str | None) -> str:
    """What the Hub reads. Accuracies are named results of this card, not verified by the Hub."""
    from huggingface_hub import EvalResult, ModelCardData

    data = str(card.get("data", {}).get("name", "pictures"))
    found = [
        EvalResult(
            task_type="image-classification",
            dataset_type=HUB_DATA.get(data, data),
            dataset_name=data,
            dataset_split=row["split"],
            metric_type=kind,
            metric_name=f"{words}, {row['patch']} patch, {row['rule']}",
            metric_value=row[key],
        )
        for row in results(card)
        for key, kind, words in (
            ("clean", "accuracy", "clean accuracy"),
            ("certified", "certified-accuracy", "certified accuracy"),
        )
    ]
    told = ModelCardData(
        license=license or card.get("license"),
        library_name="bagcert",
        pipeline_tag="image-classification",
        tags=TAGS,
        datasets=[HUB_DATA[data]] if data in HUB_DATA else None,
        metrics=["accuracy"],
        model_name=repository.partition("/")[2] if found else None,
        eval_results=found or None,
    )
    return str(told.to_yaml())


def page(card: Mapping[str, Any], repository: str) -> str:
    """What a visitor of the Hub reads."""
    name, (height, width) = repository.partition("/")[2], card["scorer"]["image_size"]
    lines = [
        f"# {name}",
        f"An image classifier whose answers come with proofs: no {card['patch']} patch, anywhere in the "
        f"{height}x{width} image and with any pixels, changes a proven answer.",
        f'```python\nimport bagcert  # pip install "bagcert[hub]"\n\ndefense = bagcert.load("{PREFIX}{repository}")\n'
        'print(defense("picture.jpg"))  # the class, and what no patch can change\n```',
        "Add `@` and a commit to the name to pin it. The weights are safetensors, and their SHA-256 is in "
        "`config.json`; loading runs no code of this repository.",
    ]
    table = [
        f"| {row['patch']} | {row['rule']} | {row['split']} | {100 * row['clean']:.2f} | {100 * row['certified']:.2f} |"
        for row in results(card)
    ]
    if table:
        head = ["| patch | rule | split | clean % | certified % |", "|---|---|---|---|---|"]
        lines += ["## What it proves", "\n".join([*head, *table])]
    classes = ", ".join(card["classes"][:20]) + (", ..." if len(card["classes"]) > 20 else "")
    facts = {
        "command": f"`{card['command']}`" if "command" in card else None,
        "data": card.get("data", {}).get("name"),
        "digest of the data": card.get("data", {}).get("digest"),
        "seed": card.get("seed"),
        "device": card.get("device"),
        "minutes": f"{card['seconds'] / 60:.1f}" if "seconds" in card else None,
        "network": card["scorer"]["kind"],
        f"{len(card['classes'])} classes": classes,
        "SHA-256 of the weights": f"`{card['weights_sha256']}`",
    }
    made = [f"| {what} | {told} |" for what, told in facts.items() if told is not None]
    return "\n\n".join([*lines, "## How it was made", "\n".join(["| | |", "|---|---|", *made])]) + "\n"
