"""Time a network as products of matrices in bfloat16 or fp8, beside the program fast.

    python -m benchmarks.kernels                                (all 10,000 test images, on a GPU)
    python -m benchmarks.kernels --device cpu --images 1000     (what fp8 costs in accuracy; five minutes on one thread)

The paper's network of field 7 with random weights, then the shipped models, against 5x5 patches. On a GPU, `kernel.py`
multiplies, and each shape is timed by itself; on a CPU its plain twin stands in, which is slow, so nothing is timed.
Units of fp8 come from training images. Every form of a network has scores of its own, so its accuracies are measured.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from bagcert.data import load_dataset
from bagcert.data.base import Batch
from bagcert.defense import Defense, load
from bagcert.program import FAST, find_device, usual_device
from bagcert.rows.prover import one_thread
from bagcert.scorers.residual import ResidualConfig
from bagcert.stored_models import shipped_models
from bagcert.tensors import Images
from benchmarks.kernels.network import FP8, FlatNetwork, Multiply, largest_inputs, multiply_plainly
from studies.common.commands import choose
from studies.common.results import BENCHMARKS, provenance, write_results
from studies.common.timing import timed

PATCH, PAPER = "5x5", "paper, field 7"
FORMS = {"bfloat16": torch.bfloat16, "fp8": FP8}
BATCH = {"cpu": 50, "cuda": 1000}
SEEN = 512  # training images that set the units


def defenses(names: list[str], device: torch.device) -> Iterator[tuple[str, Defense]]:
    """The paper's network votes at random; ours are those that are shipped, by two-mask."""
    for name in names:
        if name == PAPER:
            paper = ResidualConfig().build((32, 32), mean=(0.0,), std=(1.0,)).to(device).eval()
            yield name, Defense.build(paper, "every-region", PATCH, tuple("0123456789"))
        else:
            yield name, load(name, device).against(PATCH, "two-mask")


@torch.no_grad()
def flat(defense: Defense, form: str, training: Images, multiply: Multiply, batch: int) -> Defense:
    """The same defense with another form of its network."""
    scorer = defense.scorer.folded().eval()
    members: Iterable[Any] = getattr(scorer, "parts", (scorer, *getattr(scorer, "others", ())))  # of a mixed pair
    for member in members:
        seen: dict[Any, float] = {}
        for part in training.split(batch):  # type: ignore[no-untyped-call]
            for layer, largest in largest_inputs(member, part).items():
                seen[layer] = max(seen.get(layer, 0.0), largest)
        member._logits = FlatNetwork(member, FORMS[form], seen, multiply)
    return replace(defense, scorer=scorer, batch_size=batch, running=None)


def measured(defense: Defense, batch: Batch, repeats: int) -> dict[str, Any]:
    """Accuracies; on a GPU also seconds of network and rule for all images, the shortest of some."""
    scores = defense.scores(batch.images)
    found = defense.certify_integers(scores, exact=False)
    right = found.predicted == batch.labels
    row = {"clean": share(right), "certified": share(right & found.certified)}
    if not batch.images.is_cuda:
        return row
    network = timed(lambda: defense.scores(batch.images), batch.images.device, repeats)
    rule = timed(lambda: defense.certify_integers(scores, exact=False), batch.images.device, repeats)
    return {**row, "network_seconds": round(network, 4), "rule_seconds": round(rule, 4)}


def share(chosen: Tensor) -> float:
    return int(chosen.sum()) / len(chosen)


def kernels(
    device: Annotated[str | None, typer.Option(help="cpu or cuda; the GPU if there is one")] = None,
    images: Annotated[int, typer.Option(help="the first ones of the test set", min=1)] = 10_000,
    repeats: Annotated[int, typer.Option(help="of which the shortest counts", min=1)] = 3,
    networks: Annotated[list[str] | None, typer.Option("--network", help="as they are printed; else all")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
    out: Annotated[Path | None, typer.Option(help="what was measured, as JSON")] = None,
) -> None:
    """Compare the forms of a network."""
    place = find_device(device, usual_device())
    kind, rows = place.type, []
    every = [PAPER, *shipped_models()] if kind == "cuda" else list(shipped_models())
    dataset = load_dataset("cifar10", data_dir)
    batch = next(iter(dataset.split("test").batches(images, place)))
    training = next(iter(dataset.split("train").batches(SEEN, place))).images
    multiply: Any = multiply_plainly
    if kind == "cuda":
        from benchmarks.kernels.kernel import Kernel  # needs Triton

        multiply = Kernel()
    with one_thread():
        options = ["--device", kind, "--images", images, "--repeats", repeats]
        options += [word for name in networks or [] for word in ("--network", name)]
        head = provenance("benchmarks.kernels", options, place)
        for name, defense in defenses(choose("network", networks, every), place):
            fast = defense.by(FAST)
            for form, asked in (
                (FAST, fast if kind == "cpu" else replace(fast, batch_size=BATCH[kind])),
                *((form, flat(defense, form, training, multiply, BATCH[kind])) for form in FORMS),
            ):
                rows.append({"network": name, "form": form, **measured(asked, batch, repeats)})
                print(rows[-1], flush=True)
                shapes = multiply.table() if kind == "cuda" else {}
                facts = {"patch": PATCH, "images": images, "networks": rows, **shapes}
                write_results(out or BENCHMARKS / f"kernels-{kind}.json", head, facts)  # so that nothing is lost
