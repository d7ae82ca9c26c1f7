"""Image classifiers whose decisions are proven safe from adversarial patches, in one or two forward passes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bagcert.version import __version__ as __version__

if TYPE_CHECKING:
    from bagcert.answers import Answer as Answer
    from bagcert.attacks.settings import AttackSettings as AttackSettings
    from bagcert.certify import certified_size as certified_size
    from bagcert.certify import certify_scores as certify_scores
    from bagcert.defending import cover as cover
    from bagcert.defending import defend as defend
    from bagcert.defense import Defense as Defense
    from bagcert.defense import load as load
    from bagcert.errors import UsageError as UsageError
    from bagcert.rules import Certificate as Certificate
    from bagcert.rules import Detect as Detect
    from bagcert.rules import EveryRegion as EveryRegion
    from bagcert.rules import LargestRegion as LargestRegion
    from bagcert.rules import Masked as Masked
    from bagcert.rules import Monotone as Monotone
    from bagcert.rules import TwoMask as TwoMask
    from bagcert.scorers.wrapped import wrap as wrap
    from bagcert.several_answers import certify_labels as certify_labels
    from bagcert.several_answers import certify_segmentation as certify_segmentation
    from bagcert.several_answers import certify_top as certify_top
    from bagcert.threats import Footprint as Footprint
    from bagcert.threats import Layer as Layer

# Where each public name lives. It is imported when it is first asked for: the command line's help needs no torch.
HOMES = {
    "Answer": "bagcert.answers",
    "AttackSettings": "bagcert.attacks.settings",
    "Certificate": "bagcert.rules",
    "Defense": "bagcert.defense",
    "Detect": "bagcert.rules",
    "EveryRegion": "bagcert.rules",
    "Footprint": "bagcert.threats",
    "LargestRegion": "bagcert.rules",
    "Layer": "bagcert.threats",
    "Masked": "bagcert.rules",
    "Monotone": "bagcert.rules",
    "TwoMask": "bagcert.rules",
    "UsageError": "bagcert.errors",
    "certified_size": "bagcert.certify",
    "certify_labels": "bagcert.several_answers",
    "certify_scores": "bagcert.certify",
    "certify_segmentation": "bagcert.several_answers",
    "certify_top": "bagcert.several_answers",
    "cover": "bagcert.defending",
    "defend": "bagcert.defending",
    "load": "bagcert.defense",
    "wrap": "bagcert.scorers.wrapped",
}

__all__ = list(HOMES)


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'bagcert' has no attribute '{name}'")
    return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
