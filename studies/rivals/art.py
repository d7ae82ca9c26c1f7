"""An outside check: the Adversarial Robustness Toolbox (ART) on the same weights, images and patch, vote by vote.

    make peers                                               (sets it up in .venv-peers, tests, and runs this)
    .venv-peers/bin/python -m studies rivals art RUN      (a run of ds-column-cifar10 or ds-row-cifar10)

Both get the classifier of the run. Their summed votes must be equal, and ART's certified set must be ours plus the
ties that its rule adds. Two kinds of images are counted separately: those with a softmax too close to θ for float32 to
agree on, and ties that ART certifies wrongly. Both are timed one after the other in one process, so only the ratio
matters. ART has none of our other rules and shapes: its certificate is Condition 3.3 for squares.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor

from bagcert.data import load_dataset
from bagcert.defense import Defense, load
from bagcert.errors import UsageError
from bagcert.scorers.ablation import AblationScorer
from bagcert.stored_models import card
from studies.common.results import provenance, write_results
from studies.rivals.tie_rules import TIE_RULES, added_by_ties

COLUMNS = Path(__file__).parents[2] / "tests" / "peers" / "columns"
NEAR = 1e-5  # float32 sums in another order change a softmax by less


@dataclass(frozen=True, eq=False)
class Side:
    """What one program says about each image."""

    votes: Tensor  # int64 [b k], summed over the ablations
    predicted: Tensor  # int64 [b]
    certified: Tensor  # bool [b], with the ties that ART's rule adds

    def differs(self, other: "Side") -> dict[str, Tensor]:
        """What is not the same, bool [b] each."""
        return {
            "votes": (self.votes != other.votes).any(dim=1),
            "predictions": self.predicted != other.predicted,
            "certificates": self.certified != other.certified,
        }


def ablation_of(defense: Defense) -> tuple[AblationScorer, str, int]:
    """The scorer, ART's name for what it keeps, and how many pixels that is."""
    scorer = defense.scorer
    if not isinstance(scorer, AblationScorer) or not scorer.config.theta:
        raise UsageError("This run is not one of derandomized smoothing by votes. Train ds-column-cifar10.")
    (rows, columns), (height, width) = scorer.config.kept, scorer.footprint.image_size
    if rows == height:
        return scorer, "column", columns
    if columns == width:
        return scorer, "row", rows
    if rows == columns:
        return scorer, "block", rows
    raise UsageError(f"ART knows columns, rows and square blocks, but this run keeps {rows}x{columns}.")


def art_classifier(defense: Defense) -> Any:
    """ART's smoothed classifier around the very same network, on the CPU."""
    try:
        from art.estimators.certification import derandomized_smoothing as toolbox  # type: ignore[import-not-found]
    except ImportError as error:
        raise UsageError(f"The Adversarial Robustness Toolbox is missing ({error}). Run make peers.") from error
    scorer, kind, size = ablation_of(defense)
    return toolbox.PyTorchDeRandomizedSmoothing(
        model=scorer.classifier,
        loss=torch.nn.CrossEntropyLoss(),
        input_shape=(scorer.config.channels, *scorer.footprint.image_size),
        nb_classes=scorer.config.classes,
        ablation_size=size,
        ablation_type=kind,
        algorithm="levine2020",
        threshold=scorer.config.theta,
        logits=True,
        clip_values=(0, 1),
        device_type="cpu",
        verbose=False,
    )


def by_art(classifier: Any, images: Tensor, labels: Tensor, side: int) -> Side:
    """Votes from its `predict`, certificates from its ablator: `eval_and_certify` gives two numbers for all images."""
    votes = torch.from_numpy(np.asarray(classifier.predict(images.numpy()))).long()
    certified, _, predicted = classifier.ablator.certify(votes, size_to_certify=side, label=labels)
    return Side(votes, predicted, certified)


def by_us(defense: Defense, images: Tensor) -> tuple[Side, Tensor]:
    """And which of our certificates are those ties, bool [b]."""
    scores = defense.scores(images)
    certificate = defense.certify_integers(scores)
    _, lower_index = TIE_RULES["ds-column"]
    ties = added_by_ties(defense, scores, lower_index)
    votes = scores.values.long().sum(dim=(2, 3))
    return Side(votes, certificate.predicted, certificate.certified | ties), ties


def clear_of_theta(defense: Defense, images: Tensor) -> Tensor:
    """The images without a softmax value so close to θ that its vote depends on the order of sums, bool [b]."""
    scorer, _, _ = ablation_of(defense)
    with torch.no_grad():
        soft = torch.cat([scorer.logits(part).float().softmax(dim=1) for part in images.split(16)])  # type: ignore[no-untyped-call]
    return ((soft - scorer.config.theta).abs() > NEAR).flatten(1).all(dim=1)


def shared_second(votes: Tensor) -> Tensor:
    """The images with several classes in second place, bool [b]: ART's tie rule asks about one of them only."""
    first, second = votes.topk(2, dim=1).values.unbind(dim=1)
    return ((votes == second[:, None]).sum(dim=1) > 1) & (first > second)


def compare(defense: Defense, images: Tensor, labels: Tensor, side: int) -> dict[str, Any]:
    """Compare image by image, and time both on all images: `eval_and_certify` and `Defense.certify`."""
    classifier = art_classifier(defense)
    defense = defense.against(f"{side}x{side}", "largest-region")
    theirs, clear = by_art(classifier, images, labels, side), clear_of_theta(defense, images)
    ours, ties = by_us(defense, images)
    differs = ours.differs(theirs)
    # Its known bug (tests/peers/test_art_bugs.py); such a certificate does not hold, and is counted on its own.
    wrong = theirs.certified & ~ours.certified & shared_second(ours.votes) & clear
    differs["certificates"] &= ~wrong
    begun = time.perf_counter()
    defense.certify(images, exact=False)
    between = time.perf_counter()
    classifier.eval_and_certify(images.numpy(), labels.numpy(), size_to_certify=side, verbose=False)
    ended = time.perf_counter()
    return {
        "images": len(images),
        "patch": str(defense.threat),
        "too_near_to_theta": int((~clear).sum()),
        **{f"differing_{what}": int((flags & clear).sum()) for what, flags in differs.items()},
        "wrong_certificates_of_art": int(wrong.sum()),
        "certified": int(ours.certified.sum()),
        "of_these_ties": int(ties.sum()),
        "seconds_art": round(ended - between, 3),
        "seconds_ours": round(between - begun, 3),
        "art_of_ours": round((ended - between) / (between - begun), 2),
    }


def art(
    run: Annotated[Path, typer.Argument(help="a run folder of derandomized smoothing")] = COLUMNS,
    images: Annotated[int, typer.Option(help="the first ones of the test set", min=1)] = 500,
    side: Annotated[int, typer.Option(help="of the square patch", min=1)] = 5,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
    out: Annotated[Path | None, typer.Option(help="keep the result as JSON")] = None,
) -> None:
    """Compare votes, certificates and time with ART's; exit code 1 if any image differs."""
    defense = load(run)
    batch = next(iter(load_dataset(card(run)["data"]["name"], data_dir).split("test").batches(images, "cpu")))
    found = compare(defense, batch.images, batch.labels, side)
    print(json.dumps(found, indent=2))
    if out is not None:
        head = provenance("studies rivals art", ["--images", images, "--side", side], torch.device("cpu"))
        write_results(out, head, {"weights_sha256": card(run)["weights_sha256"], **found})
    if any(found[key] for key in found if key.startswith("differing")):
        raise typer.Exit(1)
