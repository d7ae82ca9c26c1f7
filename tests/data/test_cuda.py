"""On a GPU: equal bits, and a loop that never waits for the device."""

import pytest
import torch

from bagcert.data import Arrays, ArraySource, Augmentation
from bagcert.pictures.framing import to_unit

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def some_source() -> ArraySource:
    images = torch.randint(256, (1003, 3, 32, 32), generator=torch.Generator().manual_seed(0)).byte()
    return ArraySource(Arrays(images, torch.arange(1003) % 10))


def test_fractions_have_the_bits_of_the_cpu() -> None:
    levels = torch.arange(256).byte()
    assert torch.equal(to_unit(levels.cuda()).cpu(), to_unit(levels))


def test_order_and_images_are_those_of_the_cpu() -> None:
    source = some_source()
    for one, other in zip(
        source.batches(100, "cuda", epoch_seed=3), source.batches(100, "cpu", epoch_seed=3), strict=True
    ):
        assert torch.equal(one.images.cpu(), other.images)
        assert torch.equal(one.labels.cpu(), other.labels)
        assert torch.equal(one.index.cpu(), other.index)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_an_epoch_never_waits_for_the_device() -> None:
    source = some_source()
    source.arrays.on(torch.device("cuda"))
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in source.batches(100, "cuda", epoch_seed=3, augment=Augmentation(True, 4)):
            assert batch.images.is_cuda
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_start_and_shards_are_bit_identical() -> None:
    augment = Augmentation(True, 4)
    whole = list(some_source().batches(100, "cuda", epoch_seed=3, augment=augment))
    parts = [list(some_source().batches(100, "cuda", epoch_seed=3, augment=augment, shard=(r, 2))) for r in range(2)]
    rest = list(some_source().batches(100, "cuda", epoch_seed=3, augment=augment, start=4))
    for number, batch in enumerate(whole):
        assert torch.equal(torch.cat([part[number].images for part in parts]), batch.images)
    assert all(torch.equal(one.images, other.images) for one, other in zip(rest, whole[4:], strict=True))
