"""Folder sources: the same batches whatever the workers, shards or restarts; dead workers are noticed."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from bagcert.data import Augmentation, Batch, stream
from bagcert.data.stream import FolderSource, decode
from bagcert.errors import UsageError
from bagcert.pictures import Framing

COUNT = 11
FRAMING = Framing((8, 8), resize=0)
AUGMENT = Augmentation(flip=True, crop_padding=1)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    random = np.random.default_rng(0)
    names = [tmp_path / f"{number:02}.png" for number in range(COUNT)]
    for name in names:
        Image.fromarray(random.integers(256, size=(12, 10, 3), dtype=np.uint8)).save(name)
    return names


def source(paths: list[Path], workers: int = 0) -> FolderSource:
    return FolderSource(paths, torch.arange(COUNT) % 3, FRAMING, workers)


def take(paths: list[Path], workers: int = 0, **options: Any) -> list[Batch]:
    return list(source(paths, workers).batches(4, "cpu", **options))


def images_of(batches: list[Batch]) -> Tensor:
    return torch.cat([batch.images for batch in batches])


def test_in_order_with_center_crops(paths: list[Path]) -> None:
    batches = take(paths)
    assert [len(batch.labels) for batch in batches] == [4, 4, 3]
    assert torch.equal(images_of(batches), torch.stack([decode(path, FRAMING, None) for path in paths]).float() / 255)
    assert torch.cat([batch.index for batch in batches]).tolist() == list(range(COUNT))
    assert torch.cat([batch.labels for batch in batches]).tolist() == [position % 3 for position in range(COUNT)]


def test_worker_processes_give_the_same_batches(paths: list[Path]) -> None:
    alone, helped = (take(paths, workers, epoch_seed=3, augment=AUGMENT) for workers in (0, 2))
    assert torch.equal(images_of(alone), images_of(helped))


def test_a_seed_shuffles_and_moves_the_crops(paths: list[Path]) -> None:
    plain = Augmentation(flip=False, crop_padding=0)
    (batch,) = source(paths).batches(COUNT, "cpu", epoch_seed=3, augment=plain)
    assert batch.index.tolist() != sorted(batch.index.tolist())
    assert batch.labels.tolist() == (batch.index % 3).tolist()
    places = []
    for position, image in zip(batch.index.tolist(), batch.images, strict=True):
        pixels = torch.from_numpy(np.array(Image.open(paths[position]))).permute(2, 0, 1).float() / 255
        windows = pixels.unfold(1, 8, 1).unfold(2, 8, 1)  # c top left h w
        places += (windows == image[:, None, None]).all(dim=(0, 3, 4)).nonzero().tolist()
    assert len(places) == COUNT  # every image is exactly one window of its file
    assert len({tuple(place) for place in places}) > 4


@pytest.mark.parametrize("start", [1, 2, 3])
def test_a_start_in_mid_epoch_gives_the_very_same_batches(paths: list[Path], start: int) -> None:
    whole = take(paths, epoch_seed=5, augment=AUGMENT)
    rest = take(paths, epoch_seed=5, augment=AUGMENT, start=start)
    assert len(rest) == 3 - start
    for one, other in zip(rest, whole[start:], strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.index, other.index)


def test_shards_together_are_the_batch_of_one_process(paths: list[Path]) -> None:
    whole = take(paths, epoch_seed=5, augment=AUGMENT)
    ranks = [take(paths, epoch_seed=5, augment=AUGMENT, shard=(rank, 4)) for rank in range(4)]
    for number, batch in enumerate(whole):
        parts = [rank[number] for rank in ranks]
        assert torch.equal(images_of(parts), batch.images)
        assert torch.equal(torch.cat([part.labels for part in parts]), batch.labels)
    assert [len(rank[2].labels) for rank in ranks] == [0, 1, 1, 1]  # a short batch leaves a rank without an image


def test_skipped_batches_are_not_read(paths: list[Path]) -> None:
    paths[0].unlink()
    assert len(take(paths, start=1)) == 2


def test_mistakes_in_a_worker_come_back_as_one_line(paths: list[Path]) -> None:
    paths[9].write_bytes(b"no image")
    batches = source(paths, workers=2).batches(4, "cpu")
    assert len(next(batches).labels) == 4
    next(batches)
    with pytest.raises(UsageError, match=r"^Cannot read the image [^\n]*09\.png: [^\n]*$"):
        next(batches)


def test_a_killed_worker_is_an_error_not_a_hang(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    parent = os.getpid()

    def die(path: Path, framing: Framing, place: tuple[float, float] | None) -> Tensor:
        assert os.getpid() != parent
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    monkeypatch.setattr(stream, "decode", die)
    with pytest.raises(UsageError, match=r"^One of 2 reading processes died: DataLoader worker [^\n]*\. Set"):
        take(paths, workers=2)


def test_an_abandoned_epoch_leaves_no_process(paths: list[Path]) -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = set(children.read_text().split())  # of other tests
    batches = source(paths, workers=2).batches(1, "cpu")
    next(batches)
    workers = set(children.read_text().split()) - before
    assert len(workers) >= 2
    batches.close()  # type: ignore[attr-defined]
    assert not workers & set(children.read_text().split())


def test_a_range_of_a_folder_is_read_alone(paths: list[Path]) -> None:
    paths[0].unlink()
    (batch,) = source(paths).between(3, 7).batches(9, "cpu")
    assert torch.equal(batch.images, torch.stack([decode(path, FRAMING, None) for path in paths[3:7]]).float() / 255)
    assert (batch.labels.tolist(), batch.index.tolist()) == ([0, 1, 2, 0], [0, 1, 2, 3])
    assert list(source(paths).between(4, 4).batches(9, "cpu")) == []
