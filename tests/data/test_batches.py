"""Batches of in-memory sources: order, resuming, sharding."""

from typing import Any

import pytest
import torch
from torch import Tensor

from bagcert.data import Arrays, ArraySource, Augmentation, Batch
from bagcert.data.base import derive_seed
from bagcert.errors import UsageError
from bagcert.pictures.framing import to_unit

COUNT = 23
AUGMENT = Augmentation(flip=True, crop_padding=2)


def some_source() -> ArraySource:
    """23 random images; the label of an image is ten times its position."""
    images = torch.randint(256, (COUNT, 3, 8, 8), generator=torch.Generator().manual_seed(0)).byte()
    return ArraySource(Arrays(images, torch.arange(COUNT) * 10))


def take(source: ArraySource, batch_size: int = 6, **options: Any) -> list[Batch]:
    return list(source.batches(batch_size, "cpu", **options))


def assert_equal(found: list[Batch], expected: list[Batch]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.labels, other.labels)
        assert torch.equal(one.index, other.index)


def joined(batches: list[Batch], field: str) -> Tensor:
    return torch.cat([getattr(batch, field) for batch in batches])


def test_in_order_and_unchanged_without_a_seed() -> None:
    source = some_source()
    batches = take(source)
    assert [len(batch.labels) for batch in batches] == [6, 6, 6, 5]
    assert joined(batches, "index").tolist() == list(range(COUNT))
    assert torch.equal(joined(batches, "images"), source.arrays.images.float() / 255)
    assert joined(batches, "labels").tolist() == [10 * position for position in range(COUNT)]


def test_a_seed_permutes_images_labels_and_index_alike() -> None:
    source = some_source()
    batches = take(source, epoch_seed=4)
    index = joined(batches, "index")
    assert index.tolist() != list(range(COUNT))
    assert sorted(index.tolist()) == list(range(COUNT))
    assert torch.equal(joined(batches, "images"), source.arrays.images[index].float() / 255)
    assert torch.equal(joined(batches, "labels"), index * 10)
    assert_equal(take(source, epoch_seed=4), batches)
    assert joined(take(source, epoch_seed=5), "index").tolist() != index.tolist()


def test_index_counts_positions_of_the_split_not_of_the_arrays() -> None:
    arrays = some_source().arrays
    source = ArraySource(arrays, torch.tensor([20, 3, 11]))
    assert len(source) == 3
    assert source.labels.tolist() == [200, 30, 110]
    (batch,) = take(source)
    assert batch.index.tolist() == [0, 1, 2]
    assert torch.equal(batch.images, arrays.images[[20, 3, 11]].float() / 255)


def test_drop_last_leaves_out_the_short_batch() -> None:
    assert_equal(take(some_source(), epoch_seed=1, drop_last=True), take(some_source(), epoch_seed=1)[:3])


@pytest.mark.parametrize("start", [1, 3, 4, 9])
def test_a_start_in_mid_epoch_gives_the_very_same_batches(start: int) -> None:
    whole = take(some_source(), epoch_seed=7, augment=AUGMENT)
    assert_equal(take(some_source(), epoch_seed=7, augment=AUGMENT, start=start), whole[start:])


@pytest.mark.parametrize("world", [2, 3, 6])
def test_shards_together_are_the_batch_of_one_process(world: int) -> None:
    whole = take(some_source(), epoch_seed=7, augment=AUGMENT)
    ranks = [take(some_source(), epoch_seed=7, augment=AUGMENT, shard=(rank, world)) for rank in range(world)]
    for number, batch in enumerate(whole):
        parts = [rank[number] for rank in ranks]
        if len(batch.labels) == 6:
            assert {len(part.labels) for part in parts} == {6 // world}
        for field in ("images", "labels", "index"):
            assert torch.equal(joined(parts, field), getattr(batch, field))


def test_every_batch_and_epoch_is_augmented_differently() -> None:
    arrays = Arrays(some_source().arrays.images[:1].repeat(6, 1, 1, 1), torch.zeros(6, dtype=torch.int64))
    views = [
        batch.images.numpy().tobytes()
        for epoch in range(2)
        for batch in take(ArraySource(arrays), 3, epoch_seed=epoch, augment=AUGMENT)
    ]
    assert len(set(views)) == 4


def test_batch_seeds_are_pinned() -> None:
    """A resumed run must draw what the interrupted one would have drawn, also with a later version."""
    assert derive_seed(0, 0) == 3065247057545751466
    assert len({derive_seed(epoch, number) for epoch in range(20) for number in range(20)}) == 400
    assert derive_seed(1, 11) != derive_seed(11, 1)


def test_bytes_become_exact_fractions_in_the_unit_interval() -> None:
    levels = to_unit(torch.arange(256).byte())
    assert levels.tolist() == (torch.arange(256).double() / 255).float().tolist()
    assert levels[0] == 0
    assert levels[255] == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shard": (2, 2)}, r"The rank must lie in 0\.\.1, but is 2"),
        ({"shard": (0, 4)}, "The batch size must be a multiple of the 4 processes, but is 6"),
        ({"start": -1}, "The first batch must have a number of 0 or more, but has -1"),
        ({"augment": AUGMENT}, "Augmentation needs an epoch_seed. Pass one"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        take(some_source(), **options)


def test_arrays_refuse_other_types_and_lengths() -> None:
    images, labels = torch.zeros(2, 1, 4, 4).byte(), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(UsageError, match=r"Images must be uint8 \[n c h w\], but are torch.float32 \[2, 1, 4, 4\]"):
        Arrays(images.float(), labels)
    with pytest.raises(UsageError, match=r"Labels must be int64 \[2\], but are torch\.int64 \[1\]"):
        Arrays(images, labels[:1])


def test_a_range_of_a_source_is_a_source() -> None:
    source = some_source()
    some, batch = source.between(5, 18), take(source, COUNT)[0]
    assert len(some) == 13 and torch.equal(some.labels, batch.labels[5:18])
    assert torch.equal(joined(take(some), "images"), batch.images[5:18])
    assert joined(take(some), "index").tolist() == list(range(13))
    assert torch.equal(some.between(2, 4).labels, batch.labels[7:9]) and take(source.between(9, 9)) == []
