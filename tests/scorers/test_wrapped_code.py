"""Networks whose Python code looks at more than pixels: what runs is the trace, and a trace that differs is refused."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.scorers import wrapped
from bagcert.scorers.base import Scorer
from bagcert.scorers.steps import score_step
from bagcert.scorers.wrapped import wrap
from bagcert.threats import Footprint
from bagcert.threats.probe import check_traced
from bagcert.threats.tracing import trace

SIZE = (12, 12)


class Sly(nn.Module):
    """A 3x3 convolution; under some condition every score sees the mean of the whole image instead."""

    signs: Tensor

    def __init__(self, condition: Callable[[Tensor], bool]) -> None:
        super().__init__()
        self.condition = condition
        self.conv = nn.Conv2d(3, 2, 3, padding=1, bias=False)
        self.register_buffer("signs", torch.tensor([1.0, -1.0])[:, None, None])
        with torch.no_grad():
            self.conv.weight.copy_(self.signs[:, None].expand(2, 3, 3, 3) / 27)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.conv(images - 0.5)
        if self.condition(images):
            return scores + 100 * self.signs * (images - 0.5).mean(dim=(1, 2, 3), keepdim=True)
        return scores


DIFFERS = "own code must give the scores of its trace, but gives others|Pixel .* but changes output"


HIDDEN: dict[str, Callable[[Tensor], bool]] = {
    "strides": lambda x: not x.is_contiguous(),
    "memory format": lambda x: x.stride(1) == 1,
    "one image": lambda x: x.shape[0] == 1,
    "exporting": lambda x: not torch.compiler.is_exporting(),
    "compiling": lambda x: not torch.compiler.is_compiling(),
    "no gradients": lambda x: not torch.is_grad_enabled(),
    "inference": lambda x: x.is_inference(),
    "the class of the tensor": lambda x: type(x) is Tensor,
    "where its memory lies": lambda x: type(x) is Tensor and x.data_ptr() % 2 == 0,
}
SHOWN: dict[str, Callable[[Tensor], bool]] = {  # tracing, or the probe in float64, shows these by themselves
    "own type": lambda x: x.dtype == torch.float32,
    "another type": lambda x: x.dtype == torch.float64,
    "sixteen images": lambda x: x.shape[0] == 16,
    "gradients": lambda x: torch.is_grad_enabled(),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_code_that_differs_from_its_trace_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=DIFFERS):
        wrap(Sly(HIDDEN[name]).eval(), SIZE)


@pytest.mark.parametrize("name", SHOWN)
def test_branches_that_tracing_shows_are_refused(name: str) -> None:
    with pytest.raises(
        UsageError, match=r"Layers must keep|A network must treat any|Pixel|own code must give the scores of"
    ):
        wrap(Sly(SHOWN[name]).eval(), SIZE)


class Eager(Scorer):
    """A network run by its own code, with the footprint of its trace: what no check may let through."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module, self.step = module, score_step("logits")
        self.footprint = trace(copy.deepcopy(module), SIZE, 3).footprint

    def logits(self, images: Tensor) -> Tensor:
        scores: Tensor = self.module(images)
        return scores


def flips(scorer: Scorer) -> tuple[int, int]:
    """How many of some images are certified against 4x4 pixels, and how many of these a white patch flips."""
    defense = Defense.build(scorer.eval(), "two-mask", "4x4", ("bright", "dark"))
    images = torch.linspace(0.4, 0.49, 32)[:, None, None, None].expand(32, 3, *SIZE)
    attacked = images.clone()
    attacked[:, :, 4:8, 4:8] = 1
    found = defense.certify(images)
    flipped = found.certified & (defense.predict(attacked) != found.predicted)
    return int(found.certified.sum()), int(flipped.sum())


@pytest.mark.parametrize("name", ["strides", "memory format", "exporting", "compiling", "no gradients"])
def test_the_trace_keeps_its_certificates_where_the_code_does_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the comparison bypassed: the code breaks certificates by this footprint, its trace breaks none."""
    network = Sly(HIDDEN[name]).eval()
    monkeypatch.setattr(wrapped, "check_traced", lambda *_: None)
    monkeypatch.setattr(wrapped, "check_footprint", lambda *_: None)
    certified, flipped = flips(Eager(network))
    assert certified > 0 and flipped > 0
    certified, flipped = flips(wrap(network, SIZE))
    assert certified == 32 and flipped == 0


def test_code_that_turns_later_has_no_say() -> None:
    """A global variable, a closure or a clock is not seen when the network is wrapped, and cannot act afterwards."""
    armed: list[bool] = []
    network = Sly(lambda x: bool(armed)).eval()
    scorer, eager = wrap(network, SIZE), Eager(network)
    armed.append(True)
    certified, flipped = flips(eager)
    assert certified > 0 and flipped > 0
    assert flips(scorer) == (32, 0)


def test_a_leak_below_the_units_of_scores_is_seen_in_the_program_that_runs() -> None:
    network = nn.Conv2d(3, 2, 5, padding=2).eval()
    with torch.no_grad():
        network.weight.mul_(1e-6)
    traced = trace(copy.deepcopy(network), SIZE, 3)
    check_traced(network, traced, 3)
    traced.footprint = Footprint.centered(3, 1, SIZE, SIZE)
    with pytest.raises(UsageError, match=r"Pixel \(0, 0\) must reach its footprint only, but changes output \("):
        check_traced(network, traced, 3)


class Poles(nn.Module):
    """Divides by zero at one color, which no check tries."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Conv2d(3, 2, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.last(images / (images - 0.25))
        return scores


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_an_infinity_stays_in_its_footprint_or_the_network_is_refused(kind: torch.dtype) -> None:
    """On some processors convolutions of an odd number of channels in bfloat16 multiply other pixels by 0."""
    try:
        scorer = wrap(Poles().eval().to(kind), 8)
    except UsageError as error:
        assert kind != torch.float32 and "must reach its footprint only" in str(error)
        return
    images = torch.rand(16, 3, 8, 8).to(kind).contiguous(memory_format=torch.channels_last)
    attacked = images.clone()
    attacked[:, :, 4, 4] = 0.25
    moved = (scorer.scores(images) != scorer.scores(attacked)).any(dim=1).any(dim=0)
    moved[3:6, 3:6] = False
    assert not moved.any()


@pytest.mark.parametrize("last", [nn.SiLU, nn.GELU, nn.Sigmoid, nn.ReLU])
def test_the_place_in_a_batch_decides_nothing_or_the_network_is_refused(last: type[nn.Module]) -> None:
    """torch computes the last few numbers of a tensor in another way, here those of the last image."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), last()).eval()
    try:
        scorer = wrap(network, 5)
    except UsageError as error:
        assert last != nn.ReLU and "must give an image the same scores at every place of a batch" in str(error)
        return
    for image in torch.rand(64, 3, 5, 5):
        logits = scorer.logits(image.repeat(16, 1, 1, 1).contiguous(memory_format=torch.channels_last))
        assert torch.equal(logits, logits[:1].expand_as(logits))


def test_weights_of_another_shape_are_refused() -> None:
    """A larger kernel would see more than the footprint says."""
    network = nn.Sequential(nn.Conv2d(3, 2, 3, padding=1)).eval()
    scorer = wrap(network, SIZE)
    network[0] = nn.Conv2d(3, 2, 5, padding=1).eval()
    with pytest.raises(UsageError, match=r"The tensor '0.weight' was traced as torch.float32 \[2, 3, 3, 3\] on cpu"):
        scorer.scores(torch.rand(1, 3, *SIZE))


def test_weights_are_those_of_the_network() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 2, 3, padding=1), nn.BatchNorm2d(2)).eval()
    scorer, images = wrap(network, SIZE), torch.rand(3, 3, *SIZE)
    with torch.no_grad():
        network[0].weight.mul_(2)  # type: ignore[operator]
        network[1].running_mean.add_(1)  # type: ignore[operator]
    assert torch.equal(scorer.logits(images), network(images))
    assert set(scorer.state_dict()) == {f"module.{name}" for name in network.state_dict()}
    scorer.forward(images).sum().backward()  # type: ignore[no-untyped-call]
    assert network[0].weight.grad is not None


class Typed(nn.Module):
    """Adds constants of the type and on the device of the images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.conv(images.to(self.conv.weight.dtype))
        return scores + torch.tensor([[[1.0]], [[2.0]]], device=images.device)


def test_a_network_that_moves_is_traced_again() -> None:
    scorer = wrap(Typed().eval(), SIZE)
    images = torch.rand(2, 3, *SIZE)
    before = scorer.logits(images)
    moved = copy.deepcopy(scorer).double()
    after = moved.logits(images.double())
    assert after.dtype == torch.float64 and torch.allclose(before.double(), after, atol=1e-5)
    assert torch.equal(scorer.logits(images), before)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.allclose(scorer.logits(images).float(), before, atol=0.1)
    fickle = wrap(Sly(lambda x: False).eval(), SIZE)
    fickle.module.condition = lambda x: x.dtype == torch.float64  # type: ignore[assignment]
    with pytest.raises(UsageError, match="Layers must keep positions apart, but mean"):
        fickle.double()


class Steps(nn.Module):
    """Votes by `torch.heaviside`, whose two arguments must be of one type."""

    def __init__(self, zero: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.zero = zero
        self.conv = nn.Conv2d(3, 2, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        scores = self.conv(images)
        return torch.heaviside(scores, self.zero(scores))


def test_constants_of_one_type_are_refused_with_the_remedy() -> None:
    with pytest.raises(UsageError) as error:
        wrap(Steps(lambda scores: torch.zeros(1)).eval(), SIZE)
    assert str(error.value) == (
        "The network must also run in float64, where NaN stays at its position, but fails there (heaviside is not yet "
        "implemented for tensors with different dtypes.). Give constants the type of the images: images.new_zeros(1), "
        "not torch.zeros(1)."
    )


@pytest.mark.parametrize(
    "zero",
    [
        lambda scores: scores.new_zeros(1),
        lambda scores: scores.new_ones(2, 1, 1),
        lambda scores: scores.new_full((1,), 0.5),
        lambda scores: torch.zeros_like(scores),
        lambda scores: torch.ones_like(scores),
        lambda scores: torch.full_like(scores, 0.5),
    ],
)
def test_constants_made_like_a_tensor_see_no_pixel(zero: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    network = Steps(zero).eval()
    scorer, images = wrap(network, SIZE), torch.rand(2, 3, *SIZE)
    assert scorer.footprint.receptive_field == (3, 3)
    assert torch.equal(scorer.logits(images), network(images)) and bool(network(images).std() > 0)


class Storing(nn.Module):
    """Keeps its input, or its scores with their gradient, for whoever asks later."""

    stored: object

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.stored = what, None
        self.conv = nn.Conv2d(3, 2, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.conv(images)
        self.stored = {"input": images, "list": [images], "scores": scores}[self.what]
        return scores


@pytest.mark.filterwarnings("ignore:The tensor attribute")
@pytest.mark.parametrize("what", ["input", "list", "scores"])
def test_a_network_that_stores_is_refused_in_one_line(what: str) -> None:
    network = Storing(what).eval()
    with pytest.raises(UsageError, match=r"^[A-Z].*\. [A-Z].*\.$"):
        wrap(network, SIZE)
    assert network.stored is None, "a copy was tried"
    network(torch.rand(1, 3, *SIZE))
    with pytest.raises(UsageError, match=r"^[A-Z].*\. [A-Z].*\.$") as error:
        wrap(network, SIZE)
    assert what != "scores" or "The network cannot be copied (Only Tensors created" in str(error.value)


class Changeling(nn.Module):
    """Something else than its trace: an error of its own, or no tensor."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.act = act

    def forward(self, images: Tensor) -> object:
        return images if torch.compiler.is_exporting() else self.act()


def test_code_that_fails_where_its_trace_does_not_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match=r"The network fails on \[16, 3, 12, 12\] \(division by zero\)\. Check"):
        wrap(Changeling(lambda: 1 / 0), SIZE)
    with pytest.raises(UsageError, match=r"Scores must be one tensor, but are str\. Return the score map alone\."):
        wrap(Changeling(lambda: "scores"), SIZE)
    with pytest.raises(UsageError, match="The network's own code must give the scores of its trace, but gives others"):
        wrap(Changeling(lambda: torch.zeros(2, dtype=torch.float64)), SIZE)
