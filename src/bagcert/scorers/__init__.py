"""Networks from images to score maps, score steps, weights on disk: one file per kind, one row in `NETWORKS`.

May import: config, errors, files, program, tensors, threats.
"""

from bagcert.scorers.base import Scorer
from bagcert.scorers.residual import CIFAR_KERNELS, IMAGENET_KERNELS, ResidualConfig, ResidualScorer
from bagcert.scorers.steps import ScoreStep, score_step

__all__ = [
    "CIFAR_KERNELS",
    "IMAGENET_KERNELS",
    "ResidualConfig",
    "ResidualScorer",
    "ScoreStep",
    "Scorer",
    "score_step",
]
