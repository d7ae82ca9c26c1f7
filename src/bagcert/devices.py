"""How much is computed at once, by the kind of device."""

from collections.abc import Mapping

import torch


def at_once(limits: Mapping[str, int], device: torch.device) -> int:
    """The limit of that device; one of a kind that nobody has measured is treated as a CPU."""
    return limits.get(device.type, limits["cpu"])
