"""The 1,797 handwritten digits that come with scikit-learn: 8x8 pixels, one channel, no download."""

import hashlib

import numpy as np
import torch

from bagcert.data.arrays import ArrayDataset, Arrays
from bagcert.data.base import cut
from bagcert.errors import need_packages

CLASSES = tuple("0123456789")
STATISTICS = ((0.304806,), (0.375632,))  # of the training part
LEVELS = 16  # scikit-learn's pixels lie in 0..16
TEST_SHARE = 5  # one image in five of each class
TEST_SEED = 8  # another seed than that of the validation split


def load_digits() -> ArrayDataset:
    """Gray levels are scaled to 0..255. scikit-learn has no test split, so a fixed fifth becomes ours."""
    need_packages("The digits data set", {"sklearn": "scikit-learn"})
    from sklearn import datasets

    pixels, targets = datasets.load_digits(return_X_y=True)
    images = torch.from_numpy((pixels * 255 / LEVELS).round().astype(np.uint8)).reshape(-1, 1, 8, 8)
    labels = torch.from_numpy(targets.astype(np.int64))
    held_out = cut(labels, TEST_SHARE, TEST_SEED)
    train, test = Arrays(images[~held_out], labels[~held_out]), Arrays(images[held_out], labels[held_out])
    content = images.numpy().tobytes() + labels.numpy().astype("<i8").tobytes()
    return ArrayDataset("digits", CLASSES, STATISTICS, train, test, hashlib.sha256(content).hexdigest())
