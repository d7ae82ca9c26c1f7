"""A scorer by another program than its own: folded, in bfloat16, compiled. The scorer itself stays as it is."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from bagcert.errors import UsageError, first_line
from bagcert.program import Program, find_program, full_precision
from bagcert.scorers.base import Scorer
from bagcert.tensors import Images, Scores

Run = Callable[[Images], Tensor]  # images on the program's device to logits


class Running:
    """Integer scores of a scorer by a program of `PROGRAMS`; a change of its weights is noticed, and followed."""

    def __init__(self, scorer: Scorer, name: str) -> None:
        self.scorer, self.name = scorer, name
        self.program = find_program(name, next(scorer.parameters()).device)
        self.follow()

    def follow(self) -> None:
        """Take over the weights that the scorer has now."""
        weights = {name: value.clone() for name, value in self.scorer.state_dict().items()}
        self.logits = logits_by(self.program, self.scorer)
        self.weights = weights  # last: only now are they those of the logits

    def current(self) -> "Running":
        """Itself, with the scorer's weights; else certificates would be those of weights that are no more."""
        if any(module.training for module in self.scorer.modules()):
            raise UsageError("The scorer is in training mode. Call scorer.eval() first.")
        if not all(torch.equal(value, self.weights[name]) for name, value in self.scorer.state_dict().items()):
            self.follow()
        return self

    def __call__(self, images: Images) -> Scores:
        return self.scorer.step.fixed(self.logits(images))


def logits_by(program: Program, scorer: Scorer) -> Run:
    """The logits of a copy of the scorer by this program, as a defense and an audit run it."""
    layout = torch.channels_last if program.channels_last else torch.contiguous_format
    ours = scorer.folded() if program.folded else copy.deepcopy(scorer)
    network = ours.to(program.device).to(memory_format=layout)  # type: ignore[call-overload]
    logits = compiled(network) if program.compiled else network.logits
    kind = torch.device(program.device).type

    def run(images: Images) -> Tensor:
        placed = images.to(program.device).contiguous(memory_format=layout)
        with torch.no_grad(), torch.autocast(kind, torch.bfloat16, enabled=program.reduced), arithmetic(program):
            return logits(placed)

    return run


def compiled(network: Scorer) -> Run:
    """The network's logits by torch.compile, which fails only at the first call, if it does."""
    torch.compiler.reset()  # torch would reuse code compiled with cuDNN for a program without it, and vice versa
    fast = torch.compile(network.logits)

    def run(images: Images) -> Tensor:
        try:
            return fast(images)
        except Exception as error:
            raise UsageError(
                f"torch.compile fails here ({first_line(error)}). Leave out --compile or --program fast."
            ) from error

    return run


@contextmanager
def arithmetic(program: Program) -> Iterator[None]:
    """The settings of a defense, except for cuDNN and TF32 if the program asks for them."""
    with full_precision():
        if program.tf32 or program.cudnn:
            with torch.backends.cudnn.flags(enabled=True, deterministic=program.cudnn, allow_tf32=program.tf32):
                yield
        else:
            yield
