"""The arithmetic of proofs: what torch is set to inside, also where autocast and other threads have their say."""

from threading import Event, Thread

import pytest
import torch

from bagcert.program import ONE_AT_A_TIME, full_precision
from tests.gpu_autocast import gpu_autocast


def settings() -> tuple[str, bool, bool]:
    cudnn = torch.backends.cudnn
    return torch.get_float32_matmul_precision(), cudnn.enabled, cudnn.allow_tf32


@pytest.mark.parametrize(("dtype", "cudnn"), [(torch.bfloat16, True), (torch.float16, False), (torch.float32, False)])
def test_cudnn_stays_for_bfloat16_alone(dtype: torch.dtype, cudnn: bool) -> None:
    """What autocast makes of a network in float16 or float32 was never audited."""
    with gpu_autocast(dtype=dtype), full_precision():
        assert settings() == ("highest", cudnn, False)


def test_inside_it_can_be_entered_again_and_errors_restore_all() -> None:
    before = settings()
    with pytest.raises(ValueError, match="inside"), gpu_autocast(), full_precision():
        with gpu_autocast(enabled=False), full_precision():
            assert settings() == ("highest", False, False)
        assert settings() == ("highest", True, False)
        raise ValueError("inside")
    assert settings() == before


def test_without_onednn_no_pixel_leaves_its_footprint() -> None:
    """torch then takes NNPACK for 16 images and more, which multiplies transformed tiles or spectra."""
    convolution, draw = torch.nn.Conv2d(4, 4, 5, padding=2), torch.Generator().manual_seed(0)
    images = torch.rand(16, 4, 32, 32, generator=draw)
    changed = images.clone()
    changed[:, :, 10, 10] = 1 - images[:, :, 10, 10].round()
    before = torch._C._get_nnpack_enabled()
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False, allow_tf32=None), full_precision():
        moved = (convolution(images) != convolution(changed)).any(dim=1).any(dim=0)
    moved[8:13, 8:13] = False
    assert not moved.any()
    assert torch._C._get_nnpack_enabled() == before


def test_one_thread_at_a_time_is_inside() -> None:
    """torch has one set of flags for all threads: who came second would be left with what the first one found."""
    before, inside, may_leave = settings(), Event(), Event()

    def other() -> None:
        with full_precision():
            inside.set()
            may_leave.wait(10)

    thread = Thread(target=other)
    thread.start()
    assert inside.wait(10)
    assert not ONE_AT_A_TIME.acquire(blocking=False)
    may_leave.set()
    with full_precision():
        assert settings() == ("highest", False, False)
    thread.join(10)
    assert settings() == before
