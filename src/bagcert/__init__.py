"""Image classifiers whose decisions are proven safe from adversarial patches, in one or two forward passes."""

from bagcert.attacks.settings import AttackSettings
from bagcert.certify import certified_size, certify_scores
from bagcert.defense import Defense, load
from bagcert.errors import UsageError
from bagcert.rules import Certificate, EveryRegion, LargestRegion, Masked, Monotone, TwoMask
from bagcert.scorers.wrapped import wrap
from bagcert.threats import Footprint, Layer

__all__ = [
    "AttackSettings",
    "Certificate",
    "Defense",
    "EveryRegion",
    "Footprint",
    "LargestRegion",
    "Layer",
    "Masked",
    "Monotone",
    "TwoMask",
    "UsageError",
    "certified_size",
    "certify_scores",
    "load",
    "wrap",
]
