"""A trained run made into a model to ship: weights of 8 bits, a card, and the rows behind every number on the card."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bagcert.data import Dataset
from bagcert.defense import load
from bagcert.errors import UsageError
from bagcert.files import pack_tensors, sha256, write_atomically, write_json
from bagcert.rows.certified import read_rows
from bagcert.rows.format import Evaluation
from bagcert.rows.header import describe
from bagcert.rows.resume import store
from bagcert.rows.write import Plan, write_rows
from bagcert.rules import rules_for
from bagcert.scorers import Scorer
from bagcert.scorers.weights import CONFIG, WEIGHTS, load_scorer, rounded

PATCHES = ("2x2", "5x5", "8x8", "10x10", "1x24", "24x1")
ROWS = "rows.jsonl.gz"


def evaluations_for(scorer: Scorer, own: Evaluation) -> list[Evaluation]:
    """The model's own patch and all others that fit, by every rule that applies.

    Votes have all rules but that of views, the rest their own and `two-mask`.
    """
    rules = rules_for(scorer.views)
    if not scorer.views and scorer.step.bounds != (0, 1):
        rules = list(dict.fromkeys([own.rule, "two-mask"]))
    sides = {patch: tuple(int(side) for side in patch.split("x")) for patch in PATCHES}
    height, width = scorer.footprint.image_size
    fitting = [patch for patch, (high, wide) in sides.items() if high <= height and wide <= width]
    patches = fitting if own.patch in fitting else [own.patch, *fitting]
    return [Evaluation(patch, rule) for patch in patches for rule in rules]


def store_rounded(run: Path, out: Path) -> None:
    """Copy a run with its weights rounded; the config names the new digest."""
    scorer, card = load_scorer(run)
    content = pack_tensors(rounded(scorer.state_dict()), {})
    card = {**card, "weights_sha256": sha256(content)}
    if (out / CONFIG).exists():  # begun before: the same run, or another one
        if load_scorer(out)[1]["weights_sha256"] != card["weights_sha256"]:
            raise UsageError(
                f"{out} is neither empty nor a folder that this run was shipped to. Choose another folder."
            )
        return
    write_atomically(out / WEIGHTS, content)
    write_json(out / CONFIG, card)


def ship(
    run: Path,
    out: Path,
    dataset: Dataset,
    device: torch.device,
    facts: dict[str, Any],
    after_batch: Callable[[int], None],
) -> dict[str, Any]:
    """Store the run in `out`, certify all test images on the device in float32, and complete the card.

    `facts` are for the card.
    """
    store_rounded(run, out)
    defense = load(out, device)
    card = dict(defense.card)
    if card["data"]["digest"] != dataset.digest:
        raise UsageError(
            f"The run was trained on other data: the digest of {dataset.name} differs. Use the data of the run."
        )
    plain = out / "certifying.jsonl"
    own = Evaluation(card["patch"], card["rule"])
    about = describe(out.name, defense, dataset, "test")
    test = dataset.split("test")
    write_rows(plain, defense, Plan(evaluations_for(defense.scorer, own), len(test)), test, about, after_batch)
    store(plain, out / ROWS)
    card = {**card, **facts, "test": card_table(out / ROWS)}
    write_json(out / CONFIG, card)
    return card


def card_table(path: Path) -> list[dict[str, Any]]:
    """The accuracies of a rows file, one entry per evaluation."""
    rows = read_rows(path)
    table = []
    for entry in rows.results:
        shares = rows.accuracies(entry)
        table.append(
            {
                "patch": entry.patch,
                "rule": entry.rule,
                "clean": round(shares.clean, 6),
                "certified": round(shares.certified, 6),
                "answered": round(shares.answered, 6),
            }
        )
    return table
