"""Frames go into the network as OpenCV would resize them, and class ids come out as torch would."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from suture.data.read_scenes import resize_image
from suture.prediction.preprocess import to_class_ids, to_network

side = st.integers(1, 90)


def distance(frame: np.ndarray, size: tuple[int, int]) -> float:
    """The largest difference to OpenCV's picture, in steps of a byte."""
    images = to_network(torch.from_numpy(frame)[None], size)
    assert images.shape == (1, 3, *size)
    assert images.dtype == torch.float32
    return float(np.abs(images[0].permute(1, 2, 0).numpy() * 255 - resize_image(frame, size)).max())


@given(side, side, side, side, st.integers(0, 2**32 - 1))
def test_pictures_are_those_of_opencv(height: int, width: int, new_height: int, new_width: int, seed: int) -> None:
    frame = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    assert distance(frame, (new_height, new_width)) <= 1.001


@pytest.mark.parametrize("frame", [(1080, 1920), (1024, 1280), (512, 512), (1, 1), (3, 4097), (1079, 1919)])
@pytest.mark.parametrize("size", [(256, 256), (120, 160)])
def test_sizes_of_videos(frame: tuple[int, int], size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    assert distance(rng.integers(0, 256, (*frame, 3), np.uint8), size) <= 1.001


def test_a_batch_is_its_frames() -> None:
    frames = torch.randint(0, 256, (3, 50, 70, 3), dtype=torch.uint8)
    together = to_network(frames, (32, 64))
    for frame, image in zip(frames, together, strict=True):
        torch.testing.assert_close(to_network(frame[None], (32, 64))[0], image)


def test_nothing_of_a_traced_graph_is_kept() -> None:
    class Model(torch.nn.Module):
        def forward(self, frames: torch.Tensor) -> torch.Tensor:
            return to_network(frames, (33, 44))

    frames = torch.randint(0, 256, (1, 60, 80, 3), dtype=torch.uint8)
    graph = torch.export.export(Model(), (frames,), strict=False)
    images = to_network(frames, (33, 44))
    assert type(images) is torch.Tensor
    torch.testing.assert_close(graph.module()(frames), images)


@given(side, side, side, side, st.integers(1, 6))
def test_class_ids(height: int, width: int, new_height: int, new_width: int, classes: int) -> None:
    scores = torch.randn(2, classes, height, width)
    ids = to_class_ids(scores, (new_height, new_width))
    assert ids.dtype == torch.uint8
    expected = F.interpolate(scores, (new_height, new_width), mode="bilinear", align_corners=False).argmax(1)
    assert ids.tolist() == expected.tolist()
