"""Accuracies from certificates and labels, with and without abstaining, and their intervals."""

import math
from dataclasses import dataclass
from statistics import NormalDist

from torch import Tensor

from bagcert.rules import Certificate

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


@dataclass(frozen=True)
class Accuracies:
    """Shares of all images.

    `clean`: right by the rule's own inference. `certified`: right, and proven to stay so. For "abstain unless
    certified": `answered`, and `answered_correctly`, which is `certified` again: what is answered is what is proven.

    Of a rule that detects, `clean` counts an alert as an error, and proven means detectable. Others ignore alerts.
    `alerted` is the share of images with an alert, right or wrong; None if the rule raises none.
    """

    images: int
    clean: float
    certified: float
    answered: float
    alerted: float | None = None

    @property
    def answered_correctly(self) -> float:
        return self.certified

    @property
    def right_when_answered(self) -> float:
        """The share of right answers among those given; 1 if none is."""
        return self.certified / self.answered if self.answered else 1.0


def accuracies(certificate: Certificate, labels: Tensor, detection: bool = False) -> Accuracies:
    """No label goes into a certificate; it comes in here.

    `detection` counts as for a rule that detects: an alert is an error, and a promise is the answer or an alert.
    """
    right = certificate.predicted == labels.to(certificate.predicted.device)
    proven = certificate.certified
    if detection:
        assert certificate.alert is not None and certificate.detectable is not None
        right, proven = right & ~certificate.alert, proven | certificate.detectable
    clean, certified, answered = (share(flags) for flags in (right, right & proven, proven))
    alerted = None if certificate.alert is None else share(certificate.alert)
    return Accuracies(len(labels), clean, certified, answered, alerted)


def share(flags: Tensor) -> float:
    return float(flags.double().mean())
