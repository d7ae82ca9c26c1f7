"""Accuracies from certificates and labels, with and without abstaining."""

from dataclasses import dataclass

from torch import Tensor

from bagcert.rules import Certificate


@dataclass(frozen=True)
class Accuracies:
    """Shares of all images.

    `clean`: right by the rule's own inference. `certified`: right, and proven to stay so. For "abstain unless
    certified": `answered`, and `answered_correctly`, which is `certified` again: what is answered is what is proven.
    """

    images: int
    clean: float
    certified: float
    answered: float

    @property
    def answered_correctly(self) -> float:
        return self.certified

    @property
    def right_when_answered(self) -> float:
        """The share of right answers among those given; 1 where none is."""
        return self.certified / self.answered if self.answered else 1.0


def accuracies(certificate: Certificate, labels: Tensor) -> Accuracies:
    """No label goes into a certificate; it comes in here."""
    right = certificate.predicted == labels.to(certificate.predicted.device)
    shares = (right, right & certificate.certified, certificate.certified)
    clean, certified, answered = (float(flags.double().mean()) for flags in shares)
    return Accuracies(len(labels), clean, certified, answered)
