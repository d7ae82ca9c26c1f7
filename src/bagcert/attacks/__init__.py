"""Patch attacks on defenses: what no certificate may lose to, and how far the rest holds.

May import `threats`, `rules` and `scorers`; a defense is known by what it offers (`Attackable`).
"""

from bagcert.attacks.attack import Attacked, attack
from bagcert.attacks.settings import Attackable, AttackSettings

__all__ = ["AttackSettings", "Attackable", "Attacked", "attack"]
