"""Data sets behind one interface: their facts, a fixed validation split, and batches that repeat bit for bit.

May import: errors, files, pictures.
"""

from bagcert.data.arrays import ArrayDataset, Arrays, ArraySource
from bagcert.data.augment import Augmentation
from bagcert.data.base import SPLITS, Batch, Dataset, Source
from bagcert.data.catalog import load_dataset
from bagcert.data.folder import FolderDataset, FolderSettings

__all__ = [
    "SPLITS",
    "ArrayDataset",
    "ArraySource",
    "Arrays",
    "Augmentation",
    "Batch",
    "Dataset",
    "FolderDataset",
    "FolderSettings",
    "Source",
    "load_dataset",
]
