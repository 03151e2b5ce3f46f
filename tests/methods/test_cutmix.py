"""Patches lie in the view, and show another frame of the batch."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stage_tester import meet
from torch import Tensor

from suture.methods.cutmix import cut_mix, draw_patch, in_boxes


@given(seed=st.integers(0, 2**31))
def test_patches_lie_in_the_view(seed: int) -> None:
    left, top, right, bottom = draw_patch(np.random.default_rng(seed), 1.0)
    assert 0 <= left < right <= 1 + 1e-12
    assert 0 <= top < bottom <= 1 + 1e-12
    assert (right - left) * (bottom - top) <= 0.4 + 1e-12
    assert not draw_patch(np.random.default_rng(seed), 0.0).any()


def test_half_of_the_views_get_a_patch() -> None:
    patches = np.stack([draw_patch(np.random.default_rng(seed), 0.5) for seed in range(400)])
    assert np.any(patches, 1).mean() == pytest.approx(0.5, abs=0.08)
    assert not in_boxes(torch.zeros(1, 4), (4, 4)).any()
    assert in_boxes(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), (4, 4)).all()


@given(seed=st.integers(0, 2**31), batch=st.integers(1, 4), height=st.integers(1, 6), width=st.integers(1, 6))
def test_mixes_as_the_slow_version(seed: int, batch: int, height: int, width: int) -> None:
    """Pixel by pixel: that of the frame before where the pixel's middle lies in the box, else its own."""
    rng = np.random.default_rng(seed)
    boxes = torch.from_numpy(np.stack([draw_patch(rng, 0.7) for _ in range(batch)]).astype(np.float32))
    images = torch.rand(batch, 3, height, width, generator=torch.Generator().manual_seed(seed))
    mixed = cut_mix(images, in_boxes(boxes, (height, width)), rank=0)
    for i, (left, top, right, bottom) in enumerate(boxes.tolist()):
        for y in range(height):
            for x in range(width):
                inside = left <= (x + 0.5) / width < right and top <= (y + 0.5) / height < bottom
                assert torch.equal(mixed[i, :, y, x], images[i - 1 if inside else i, :, y, x])


@pytest.mark.parametrize("batch", [2, 3, 4, 7])
def test_everyone_gives_a_patch_and_gets_one_of_another(batch: int) -> None:
    numbers = torch.arange(batch).view(-1, 1, 1).expand(-1, 2, 2)
    patched = torch.tensor([[True, False], [False, False]]).expand(batch, -1, -1)
    images = numbers[:, None].expand(-1, 3, -1, -1)
    mixed = cut_mix(numbers, patched, rank=0)
    assert torch.equal(cut_mix(images, patched, rank=0), mixed[:, None].expand_as(images))
    assert torch.equal(mixed[~patched], numbers[~patched])
    others = mixed[:, 0, 0].tolist()
    assert sorted(others) == list(range(batch))
    assert all(other != own for own, other in enumerate(others))


def test_two_processes_exchange_what_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, patched = torch.arange(6).view(-1, 1, 1), torch.ones(6, 1, 1, dtype=torch.bool)
    expected = cut_mix(numbers, patched, rank=0)
    found: list[Tensor] = [torch.empty(0), torch.empty(0)]

    def mix(rank: int) -> None:
        own = slice(3 * rank, 3 * rank + 3)
        found[rank] = cut_mix(numbers[own], patched[own], rank)

    meet(monkeypatch, 2)
    threads = [threading.Thread(target=mix, args=(rank,), name=str(rank)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(torch.cat(found), expected)
