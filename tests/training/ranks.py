"""`bagcert train` under torchrun; each process also writes its own state, and may be told to stop one of them.

STOP_RANK, STOP_STEP: the process that gets a SIGTERM, and after which step.
"""

import os
import signal

from torch import Tensor

from bagcert.cli.main import main
from bagcert.data.base import Batch
from bagcert.files import pack_tensors, write_atomically
from bagcert.training.run import Run
from bagcert.training.trainer import Trainer

RANK = os.environ["RANK"]
finish, step = Run.finish, Trainer.step


def finish_and_tell(self: Run) -> None:
    finish(self)
    write_atomically(self.folder.path / f"rank{RANK}.safetensors", pack_tensors(self.trainer.state(), {}))


def step_and_stop(self: Trainer, number: int, steps: int, batch: Batch) -> Tensor:
    if (RANK, str(number)) == (os.environ.get("STOP_RANK"), os.environ.get("STOP_STEP")):
        os.kill(os.getpid(), signal.SIGTERM)
    return step(self, number, steps, batch)


Run.finish = finish_and_tell  # type: ignore[method-assign]
Trainer.step = step_and_stop  # type: ignore[assignment,method-assign]
main()
