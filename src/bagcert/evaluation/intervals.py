"""How far a measured share may be from the true one."""

import math
from statistics import NormalDist

Z = NormalDist().inv_cdf(0.975)  # 95 %, two-sided


def wilson(successes: int, images: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, 1927): the shares p for which the count is within Z standard deviations.

    The roots of (p̂ - p)² = Z² p (1 - p) / n. Unlike p̂ ± Z √(p̂ (1 - p̂) / n) it stays inside [0, 1] and has a width at
    p̂ = 0 and p̂ = 1.
    """
    if images == 0:
        return 0.0, 1.0
    share, spread = successes / images, Z * Z / images
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    low = 0.0 if successes == 0 else max(0.0, middle - half)  # exact at the ends, where rounding would leave 1e-17
    high = 1.0 if successes == images else min(1.0, middle + half)
    return low, high
