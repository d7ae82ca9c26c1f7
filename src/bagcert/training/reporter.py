"""What a run reports: a progress bar or plain lines, a log of JSON lines, and TensorBoard if it is installed."""

import json
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from bagcert.errors import UsageError

PLAIN_SECONDS = 5.0  # between two lines if stdout is not a terminal


class Reporter:
    """Shows and logs the numbers of a run as they arrive; a context manager."""

    def __init__(self, folder: Path, first_step: int, steps: int, silent: bool = False) -> None:
        self.steps = steps
        self._log = None if silent else _continue_log(folder / "log.jsonl", first_step)
        self._board = None if silent else _board(folder / "tensorboard", first_step)
        self._console = Console(highlight=False, soft_wrap=True, quiet=silent)
        self._bar = _bar(self._console) if self._console.is_terminal else None
        self._task: TaskID | None = None
        self._said = float("-inf")
        self._accuracy = ""

    def __enter__(self) -> "Reporter":
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=self.steps, words="first steps")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._log is not None:
            self._log.close()
        if self._board is not None:
            self._board.close()

    def row(self, step: int, numbers: dict[str, float]) -> None:
        """Write one line of the log: the numbers after `step` steps."""
        if self._log is None:
            return
        try:
            self._log.write(json.dumps({"step": step, **numbers}) + "\n")
            self._log.flush()
        except OSError as error:
            raise UsageError(
                f"Cannot write the log: {error.strerror}. The last checkpoint is kept. Make room, and add --resume."
            ) from error
        if self._board is not None:
            for name, number in numbers.items():
                self._board.add_scalar(name, number, step)

    def accuracy(self, step: int, clean: float, certified: float) -> None:
        """Take the accuracies on the validation split to show from this step on."""
        self._accuracy = f"  clean {clean:.1%}  certified {certified:.1%}"
        if self._bar is None:
            self.say(f"step {step}/{self.steps}{self._accuracy}")

    def show(self, step: int, loss: float, speed: float, seconds_left: float) -> None:
        """Show the progress of the run."""
        words = f"loss {loss:.4f}{self._accuracy}  {speed:,.0f} images/s  {_clock(seconds_left)} left"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step, words=words)
        elif time.monotonic() - self._said >= PLAIN_SECONDS or step == self.steps:
            self._said = time.monotonic()
            self.say(f"step {step}/{self.steps}  {words}")

    def say(self, words: str) -> None:
        """Print one line."""
        self._console.print(words, markup=False)
        sys.stdout.flush()


def _bar(console: Console) -> Progress:
    return Progress(BarColumn(), TextColumn("{task.completed}/{task.total}  {task.fields[words]}"), console=console)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def _continue_log(path: Path, first_step: int) -> IO[str]:
    """Open the log for more lines. Drop lines after the checkpoint, and lines torn by a crash."""
    kept = []
    try:
        if path.exists():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
                try:
                    after = json.loads(line)["step"] > first_step
                except (json.JSONDecodeError, KeyError, TypeError):
                    after = True
                if after:
                    break
                kept.append(line)
        path.write_text("".join(kept), encoding="utf-8")
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"Cannot write {path}: {error.strerror}. Make room, or choose another --out.") from error


def _board(folder: Path, first_step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # optional; the log holds the same numbers
        return None
    return SummaryWriter(str(folder), purge_step=first_step)
