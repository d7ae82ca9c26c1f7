"""Run folders under kills and full disks: the last checkpoint is whole, and a model is whole or refused."""

import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import bagcert
from bagcert.errors import UsageError
from bagcert.files import pack_tensors, read_tensors, remove_parts, write_atomically
from bagcert.scorers.residual import ResidualConfig, ResidualScorer
from bagcert.training.run import RunFolder, save_run
from tests.rows.test_kills_of_rows import Killed, disk

FACTS = {"classes": ["a", "b"], "patch": "1x1", "rule": "two-mask"}
CONFIG = ResidualConfig(2, 1, width=1, kernels=(1,), paths=1, shake=False)


def scorer_of(number: int) -> ResidualScorer:
    scorer = ResidualScorer(CONFIG, (3, 3)).eval()
    with torch.no_grad():
        scorer.head.weight.fill_(number)
    return scorer


class Training(RuleBasedStateMachine):
    """Trainings of one folder, one after the other; `saved` is the step whose checkpoint was reported as written."""

    @initialize()
    def empty(self) -> None:
        self.folder = RunFolder(Path(tempfile.mkdtemp()) / "run")
        self.step = self.saved = 0
        self.finished = False

    def teardown(self) -> None:
        shutil.rmtree(self.folder.path.parent)

    def save(self) -> None:
        self.step += 1
        write_atomically(self.folder.checkpoint, pack_tensors({"w": torch.full((4,), self.step)}, {"step": self.step}))

    @precondition(lambda self: not self.finished)
    @rule()
    def checkpoint(self) -> None:
        self.save()
        self.saved = self.step

    @precondition(lambda self: not self.finished)
    @rule(kept=st.integers(0, 64), killed=st.booleans())
    def checkpoint_in_vain(self, kept: int, killed: bool) -> None:
        error = Killed() if killed else OSError(28, "No space left on device")
        with disk(kept, error), pytest.raises(Killed if killed else UsageError):
            self.save()

    @precondition(lambda self: not self.finished)
    @rule()
    def leave_a_part(self) -> None:
        self.folder.path.mkdir(exist_ok=True)
        self.folder.checkpoint.with_name(f"{self.folder.checkpoint.name}.0123456789abcdef.part").write_bytes(b"cut off")

    @precondition(lambda self: self.folder.path.exists())
    @rule()
    def clean_up(self) -> None:
        remove_parts(self.folder.checkpoint)
        assert not list(self.folder.path.glob("*.part"))

    @precondition(lambda self: not self.finished)
    @rule()
    def finish(self) -> None:
        scorer = scorer_of(self.step)
        save_run(self.folder, scorer, scorer.state_dict(), FACTS)
        self.finished, self.final = True, self.step

    @precondition(lambda self: not self.finished)
    @rule(kept=st.integers(0, 64), after=st.integers(0, 3), killed=st.booleans())
    def finish_in_vain(self, kept: int, after: int, killed: bool) -> None:
        """At the sync of the weights, of their folder, of the card, or of its folder."""
        error, scorer = (Killed() if killed else OSError(28, "No space left on device")), scorer_of(self.step)
        with disk(kept, error, after), pytest.raises(Killed if killed else UsageError):
            save_run(self.folder, scorer, scorer.state_dict(), FACTS)
        self.finished, self.final = self.folder.config.exists(), self.step

    @precondition(lambda self: self.finished)
    @rule()
    def finish_again(self) -> None:
        scorer = scorer_of(self.step + 1)
        with pytest.raises(UsageError, match="holds a model already"):
            save_run(self.folder, scorer, scorer.state_dict(), FACTS)

    @invariant()
    def the_last_checkpoint_is_whole(self) -> None:
        if self.saved and not self.finished:
            tensors, facts = read_tensors(self.folder.checkpoint)
            assert facts["step"] == self.saved and tensors["w"].tolist() == [self.saved] * 4

    @invariant()
    def a_model_is_whole_or_refused(self) -> None:
        if self.finished:
            scorer = bagcert.load(self.folder.path).scorer
            assert isinstance(scorer, ResidualScorer) and bool((scorer.head.weight == self.final).all())
        else:
            with pytest.raises(UsageError, match=r"holds no finished run|Unknown model"):
                bagcert.load(self.folder.path)


TestTraining = Training.TestCase
TestTraining.settings = settings(TestTraining.settings, max_examples=30, stateful_step_count=12, deadline=None)
