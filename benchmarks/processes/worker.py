"""One process of the measurement, alone or under torchrun: `python -m benchmarks.processes.worker KIND SIZE OUT`.

SIZE is that of the work of all processes together: images to certify, or images of a training step. OUT gets the
seconds, by the clock and of the processor of the busiest process, from the moment when everything is loaded.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from bagcert.data import load_dataset
from bagcert.defense import load
from bagcert.distributed import World, joined_world
from bagcert.rows.format import Evaluation
from bagcert.rows.header import describe
from bagcert.rows.write import Plan, write_rows
from bagcert.training.recipe import load_recipe
from bagcert.training.trainer import Trainer

MODEL, RECIPE, WARMUP, STEPS = "cifar10-small", "two-mask-cifar10", 2, 12
NETWORK = ("network.width=[64,64,64,160,160,160,160]", "network.kernels=[3,1,3,1,1,1]")  # of the recipe folder-32


def certifying(world: World, images: int) -> Callable[[], object]:
    """The images of this measurement, certified and written as `bagcert certify` does."""
    defense, dataset = load(MODEL, world.device), load_dataset("cifar10")
    source, facts = dataset.split("test"), describe(MODEL, defense, dataset, "test")
    plan = Plan([Evaluation("5x5", "two-mask")], images)
    defense.scores(next(source.batches(defense.batch_size, world.device)).images)  # warm
    folder = Path(tempfile.mkdtemp())
    return lambda: write_rows(folder / "rows.jsonl", defense, plan, source, facts, world=world)


def training(world: World, batch_size: int) -> Callable[[], object]:
    """Some steps of training, as `bagcert train` takes them."""
    dataset = load_dataset("cifar10")
    recipe = load_recipe(RECIPE, [*NETWORK, f"training.batch_size={batch_size}"])
    trainer = Trainer(recipe, dataset, dataset.split("train"), 0, world)
    batches, total = trainer.batches(0), WARMUP + STEPS
    for step, batch in enumerate(islice(batches, WARMUP)):
        trainer.step(step, total, batch)
    return lambda: [trainer.step(step, total, next(batches)) for step in range(WARMUP, total)]


WORK = {"certify": certifying, "train": training}


def main(kind: str, size: int, out: Path) -> None:
    with joined_world() as world:
        work = WORK[kind](world, size)
        world.gather(None)  # all begin together
        begun, used = time.perf_counter(), time.process_time()
        work()
        world.gather(None)
        clock, found = time.perf_counter() - begun, world.gather(time.process_time() - used)
        if world.is_main:
            out.write_text(json.dumps({"clock": clock, "processor": max(found)}), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
