import torch

from bagcert.rows.accuracy import accuracies
from bagcert.rules import ABSTAIN, Certificate


def test_accuracies_by_hand() -> None:
    certificate = Certificate(
        predicted=torch.tensor([0, 1, 2, 2, 1]), certified=torch.tensor([True, True, False, False, True])
    )
    shares = accuracies(certificate, torch.tensor([0, 2, 2, 1, 1]))
    assert (shares.images, shares.clean, shares.certified, shares.answered) == (5, 0.6, 0.4, 0.6)
    assert shares.answered_correctly == 0.4
    assert shares.right_when_answered == 0.4 / 0.6
    assert certificate.answers().tolist() == [0, 1, ABSTAIN, ABSTAIN, 1]


def test_nothing_answered_is_nothing_wrong() -> None:
    shares = accuracies(Certificate(torch.tensor([1]), torch.tensor([False])), torch.tensor([1]))
    assert (shares.clean, shares.answered, shares.right_when_answered) == (1.0, 0.0, 1.0)
