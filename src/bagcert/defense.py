"""A network, a rule and a threat: what predicts, and what it can prove."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import takewhile
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor, nn

from bagcert.answers import Answer, proof_of
from bagcert.attacks import Attacked, AttackSettings, attack
from bagcert.errors import UsageError
from bagcert.pictures import Framing, OwnPixels
from bagcert.pictures.sources import OneFile, Picture, Pictures, frame_pictures, is_one
from bagcert.program import BATCH_SIZE, EXACT, Program, callers_dtype, find_device, full_batches, versions
from bagcert.rules import Certificate, IntegerScores, Rule, find_rule, read_scores
from bagcert.rules.largest_square import largest_square, squares
from bagcert.scorers.base import Need, Scorer
from bagcert.scorers.other_program import Running
from bagcert.scorers.requirements import check_images, check_names
from bagcert.scorers.weights import load_scorer, save_scorer
from bagcert.shipped import check_shipped
from bagcert.showing import draw_answer, fingerprints, need_same, one_picture, own_pixels
from bagcert.stored_models import model_folder, model_name, shipped_models
from bagcert.tensors import Images, Labels
from bagcert.threats import Patch, Regions, Threat, parse_threat
from bagcert.threats.threat import Size


@dataclass(frozen=True, eq=False)
class Defense:
    """A classifier whose rule is built for one threat; predictions and certificates use the same masks.

    Made by `Defense.build`. A certificate holds for the program that computed the scores: these weights, this machine
    and number of threads, and batches of exactly `batch_size` images, filled up with black ones. With other batches the
    scores of an image may change in their last bits.

    >>> import torch, bagcert
    >>> defense = bagcert.load("cifar10-small").against("8x8")
    >>> defense.certify(torch.zeros(2, 3, 32, 32))
    Certificate(2 images, 0 certified)
    """

    scorer: Scorer
    rule: Rule
    threat: Threat
    regions: Regions  # the maximal ones of the threat; if the rule has masks, they cover these
    classes: tuple[str, ...]
    batch_size: int = BATCH_SIZE
    card: Mapping[str, Any] = field(default_factory=dict)  # what is known about a saved network; empty for any other
    name: str = ""  # of the model, or of the class of a network that was handed over
    running: Running | None = None  # computes its scores by another program than the network's own

    def __post_init__(self) -> None:
        check_names(self.classes, self.scorer.classes)
        if not isinstance(self.batch_size, int) or self.batch_size < 1:
            raise UsageError(f"The batch size must be a whole number of at least 1, but is {self.batch_size!r}.")
        self.rule.need_views(promised=self.scorer.views)
        if not self.rule.built:
            raise UsageError(f"Rule '{self.rule.name}' has no masks yet. Use Defense.build.")
        self.rule.need_patches(self.regions)
        self.rule.need_cover(self.regions)

    def __repr__(self) -> str:
        about, size = f"{self.name}, " if self.name else "", self.threat.image_size
        return f"Defense({about}{self.rule.name}, {self.threat} of {size[0]}x{size[1]}, {len(self.classes)} classes)"

    @staticmethod
    def build(
        scorer: Scorer,
        rule: str | Rule,
        patch: Patch,
        classes: Sequence[str],
        batch_size: int = BATCH_SIZE,
        card: Mapping[str, Any] | None = None,
    ) -> "Defense":
        """Build the rule for the threat; a masking rule that has masks already keeps them if they cover the threat."""
        if not isinstance(scorer, Scorer):
            raise UsageError(f"A defense needs a scorer, but this is {type(scorer).__name__}. Use bagcert.defend.")
        check_names(classes, scorer.classes)
        found, threat = find_rule(rule), parse_threat(patch, scorer.footprint.image_size)
        scorer = scorer.facing(threat, found.needs_views)
        regions = scorer.footprint.regions(threat).maximal().to(next(scorer.parameters()).device)
        scorer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # 1.6x faster on two cores
        return Defense(scorer, found.built_for(regions), threat, regions, tuple(classes), batch_size, card or {})

    def against(self, patch: Patch | None = None, rule: str | Rule | None = None) -> "Defense":
        """The same network as a defense against another threat, or with another rule. None keeps what there is."""
        if patch is None and rule is None:
            return self
        wanted = self.rule.unbuilt() if rule is None else rule  # masks belong to the threat they were built for
        return self._rebuilt(wanted, self.threat if patch is None else patch)

    def to(self, device: str | torch.device) -> "Defense":
        """The same defense on another device; its network moves there."""
        self.scorer.to(find_device(device))
        rule = self.rule.unbuilt() if self.rule.masks_for(self.regions) is self.regions else self.rule  # masks move too
        moved = self._rebuilt(rule, self.threat)
        return moved if self.running is None else moved.by(self.running.name)

    def _rebuilt(self, rule: str | Rule, threat: Patch) -> "Defense":
        built = Defense.build(self.scorer, rule, threat, self.classes, self.batch_size, self.card)
        return replace(built, name=self.name, running=self.running)

    def by(self, program: str) -> "Defense":
        """The same defense by another program, `exact` or `fast`: other rounding, so other certificates.

        >>> import bagcert
        >>> bagcert.load("cifar10-small").by("fast").program.dtype
        'bfloat16'
        """
        running = None if program == EXACT else Running(self.scorer, program)
        return replace(self, running=running, batch_size=running.program.batch if running else BATCH_SIZE)

    def noted(self, facts: Mapping[str, Any]) -> "Defense":
        """The same defense with more facts on its card."""
        return replace(self, card={**self.card, **facts})

    def save(self, folder: str | Path) -> None:
        """Write weights and card to a folder that `load` reads; a network of your own must be handed to it again."""
        patch, rule = str(self.threat), self.rule.written
        try:
            again = self.against(patch, rule)
        except UsageError as error:
            raise UsageError(f"A card cannot name this rule or threat ({error}) Save it against others.") from error
        masks, wanted = (each.rule.masks_for(each.regions).masks() for each in (again, self))
        if not (torch.equal(again.regions.masks(), self.regions.masks()) and torch.equal(masks, wanted)):
            raise UsageError(f"The masks of rule '{rule}' are those of another threat. Save .against('{patch}').")
        known = {key: self.card[key] for key in ("data", "framing", "weights_from") if key in self.card}
        facts = {"classes": list(self.classes), "patch": patch, "rule": rule, "versions": versions(), **known}
        save_scorer(Path(folder), self.scorer, self.scorer.state_dict(), facts)

    @property
    def device(self) -> torch.device:
        return next(self.scorer.parameters()).device

    @property
    def framing(self) -> Framing:
        """How a picture of any size becomes an image of this network: as its card says, else the usual way."""
        return Framing.on_card(self.card.get("framing"), self.scorer.footprint.image_size, self.scorer.channels or 3)

    @property
    def program(self) -> Program:
        """How this defense computes scores."""
        if self.running is not None:
            return self.running.program
        known = {"device": str(self.device), "batch": self.batch_size, "dtype": callers_dtype(self.device)}
        return Program(**{**known, **self.scorer.own_program})

    @overload
    def __call__(self, pictures: OneFile) -> Answer: ...  # type: ignore[overload-overlap]  # a text is also a sequence
    @overload
    def __call__(self, pictures: Sequence[Picture]) -> list[Answer]: ...
    @overload
    def __call__(self, pictures: Pictures) -> Answer | list[Answer]: ...

    def __call__(self, pictures: Pictures) -> Answer | list[Answer]:
        """What is proven about a picture, also in its own pixels; for several, a list in their order.

        A picture is a path, an open file, a PIL image, a NumPy array or a tensor (`bagcert.pictures.sources`). It may
        have any size: `framing` makes it an image of the network.
        """
        framed = frame_pictures(pictures, self.framing)
        answers = self.answers(self.scores(framed.images), framed.originals)
        return answers[0] if is_one(pictures) else answers

    def predict(self, pictures: Pictures) -> Tensor:
        """The class of each picture or image by the rule's own inference, int64 [b]."""
        return self.rule.predict(self.scores(self.images(pictures), Need.CLASS), self.regions)

    def certify(self, pictures: Pictures, patch: Patch | None = None, exact: bool = True) -> Certificate:
        """The class of each picture and its proof against the threat, or against a smaller one under the same masks.

        All in the network's pixels; call the defense itself for what is proven in a picture's own.
        """
        threat = self.threat if patch is None else parse_threat(patch, self.threat.image_size)
        regions = self.regions if patch is None else self.scorer.footprint.regions(threat).maximal()
        need = Need.ALL if exact or patch is not None else Need.PROOF
        images = self.images(pictures)
        found = self.rule.certify(self.scores(images, need), regions, exact)
        drawer, marks = partial(self._drawn, threat), fingerprints(images)
        return replace(found, names=self.classes, drawn_by=drawer, fingerprints=marks)

    def show(self, picture: Picture) -> Any:
        """Draw a picture with its weakest place, and the scores of its class and rival: `Certificate.show`."""
        return self._drawn(self.threat, None, picture)

    def _drawn(self, threat: Threat, certificate: Certificate | None, picture: Picture) -> Any:
        source = one_picture(picture)
        if certificate is not None and certificate.fingerprints is not None:
            need_same(certificate.fingerprints, fingerprints(self.images([source])))
        (answer,) = self([source])
        told = answer if certificate is None else answer.certified_by(certificate, threat)
        return draw_answer(told, own_pixels(source), self.scorer.footprint, self.classes)

    def images(self, pictures: Pictures) -> Images:
        """Pictures as images of the network [b c h w]. A tensor [b c h w] is taken as it is."""
        if isinstance(pictures, Tensor) and pictures.ndim == 4:
            return pictures
        return frame_pictures(pictures, self.framing).images

    def certify_integers(self, scores: IntegerScores, exact: bool = True) -> Certificate:
        """Like `certify`, from scores of this network: one forward pass serves many defenses."""
        return self.rule.certify(scores, self.regions, exact)

    def answers(self, scores: IntegerScores, originals: Sequence[Size]) -> list[Answer]:
        """What is proven about pictures of these heights and widths, from the scores of their images."""
        found = self.certify_integers(scores)
        known = torch.where(found.certified, self.square, 0)  # of a rule that detects, no square is ever proven
        sides = known if self.rule.detects else largest_square(self.rule, scores, self._smaller, known)
        framing = self.framing
        return [
            Answer(
                name=self.classes[int(each.predicted)],
                predicted=int(each.predicted),
                threat=self.threat,
                square=int(sides[number]),
                own=OwnPixels(framing, original),
                scores=scores.values[number].cpu().numpy().astype(np.int32),
                **proof_of(each, self.classes),
            )
            for number, (each, original) in enumerate(zip(found, originals, strict=True))
        ]

    @property
    def square(self) -> int:
        """The side of the largest square inside the rectangles of the threat; 0 if it has none."""
        return max((min(shape) for shape in self.threat.one.shapes), default=0)

    @cached_property
    def _smaller(self) -> list[tuple[int, Regions]]:
        """The squares inside the threat that its own certificate does not decide.

        A certified answer is proven against every rectangle inside the threat's, hence against its largest square. For
        the others the same rule, with the masks that produced the class, certifies smaller squares.
        """
        most = self.square or min(self.threat.extent)
        tried = takewhile(lambda found: found[0] <= most, squares(self.rule, self.scorer.footprint, self.device))
        return [(side, regions) for side, regions in tried if (side, side) not in self.threat.shapes]

    def check(self) -> None:
        """Refuse a rule that does not fit the scores, before any image is read."""
        low, high = self.scorer.step.bounds
        shape = (1, len(self.classes), *self.scorer.footprint.grid)
        blank = torch.full(shape, max(low, 0), dtype=torch.int32, device=self.device)
        self.certify_integers(read_scores(blank, (low, high)), exact=False)

    def attack(
        self, images: Images, labels: Labels | Sequence[int], settings: AttackSettings | None = None
    ) -> Attacked:
        """Try to change the class of each correctly classified image by a patch: `bagcert.attacks.attack`."""
        return attack(self, images, labels, settings)

    @torch.no_grad()
    def scores(self, images: Images, need: Need = Need.ALL) -> IntegerScores:
        """The integer scores of images [b c h w] with pixels in [0, 1], as far as they are needed."""
        check_images(images, self.scorer)
        kind = next((each.dtype for each in self.scorer.parameters() if each.is_floating_point()), images.dtype)
        like = torch.empty(0, dtype=kind, device=self.device)
        run = self.running.current() if self.running else partial(self.scorer.scores, need=need)
        parts = [
            run(batch.contiguous(memory_format=torch.channels_last))[:count]
            for batch, count in full_batches(images, self.batch_size, like, fill=not self.scorer.own_batches)
        ]
        scores = torch.cat(parts) if len(parts) > 1 else parts[0]  # with many classes a copy is large
        check_names(self.classes, scores.shape[1])
        return read_scores(scores, self.scorer.step.bounds)


def load(
    name: str | Path, device: str | torch.device | None = None, network: nn.Module | None = None, program: str = EXACT
) -> Defense:
    """A shipped model, a folder, or `hf-hub:owner/name@revision`, as a defense with the rule and threat on its card.

    On the CPU unless a `device` is named, by the program `exact` unless `fast` is. `name` has the commit of the Hub.

    A defense of your own network is loaded with that `network`, which gets the stored weights: a card never makes
    Python import or run anything.

    >>> import bagcert
    >>> bagcert.load("cifar10-small")
    Defense(cifar10-small, two-mask, 5x5 of 32x32, 10 classes)
    """
    folder = model_folder(name)
    scorer, found = load_scorer(folder, network)
    if folder in shipped_models().values():
        check_shipped(folder, found)
    scorer.to(find_device(device))
    try:
        built = Defense.build(scorer, found["rule"], found["patch"], found["classes"], card=found)
        return replace(built, name=model_name(name, folder)).by(program)
    except (KeyError, TypeError) as error:
        raise UsageError(
            f"Rule, patch or classes in config.json are missing or wrong ({error}). Copy the model again."
        ) from error
