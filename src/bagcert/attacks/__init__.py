"""Patch attacks on defenses: what no certificate may lose to, and how far the rest holds.

May import: errors, program, rules, scorers, tensors, threats.
"""

from bagcert.attacks.attack import Attacked, attack
from bagcert.attacks.settings import Attackable, AttackSettings

__all__ = ["AttackSettings", "Attackable", "Attacked", "attack"]
