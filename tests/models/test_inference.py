"""Frames to class probabilities, averaged over versions of the frames, and probabilities to class ids."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from suture.data.read_scenes import resize_image
from suture.models.inference import (
    interpolate_class_ids,
    predict_probabilities,
    resize_by_matrix,
    resize_frame,
    to_class_ids,
    to_images,
)

SIZE = (12, 16)
side = st.integers(1, 90)


class Columns(nn.Module):
    """A segmenter whose logits are the first channel and its negative."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([images[:, :1], -images[:, :1]], 1)


class Watched(nn.Module):
    """A segmenter whose logits depend on the pixel, its place and the image's size."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[1.0, -2.0, 0.5], [0.3, 1.0, -1.0]]))
        self.seen: list[Tensor] = []
        self.precisions: list[torch.dtype] = []

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append(images)
        logits = torch.einsum("kc,bchw->bkhw", self.weight, images)
        self.precisions.append(logits.dtype)
        height, width = images.shape[-2:]
        slope = torch.linspace(-1, 1, width) * height / 10
        return logits + slope * torch.tensor([1.0, -1.0]).view(2, 1, 1)


@pytest.fixture
def frames() -> Tensor:
    return torch.randint(0, 256, (2, *SIZE, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_one_version_is_the_softmax(frames: Tensor) -> None:
    segmenter = Watched()
    found = predict_probabilities(segmenter, frames, SIZE)
    torch.testing.assert_close(found, segmenter(frames.permute(0, 3, 1, 2) / 255).softmax(1).detach())
    assert not found.requires_grad


def test_a_flip_averages_probabilities_of_the_image_and_its_mirror(frames: Tensor) -> None:
    segmenter = Watched()
    images = to_images(frames, SIZE)
    logits, mirrored = segmenter(images), segmenter(images.flip(-1)).flip(-1)
    found = predict_probabilities(segmenter, frames, SIZE, flip=(0, 1))
    torch.testing.assert_close(found, ((logits.softmax(1) + mirrored.softmax(1)) / 2).detach())
    assert not torch.allclose(found, ((logits + mirrored) / 2).softmax(1), atol=1e-3), "not the logits"
    of_mirror = predict_probabilities(segmenter, frames.flip(2), SIZE, flip=(0, 1))
    torch.testing.assert_close(of_mirror, found.flip(-1))


def test_classes_that_swap_in_a_mirror_image_swap_back(frames: Tensor) -> None:
    """Left and right of the image as classes: as sure as without mirrored frames."""

    class Sides(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            right = torch.linspace(-1, 1, images.shape[-1]).expand(len(images), 1, *images.shape[-2:])
            return torch.cat([-right, right, torch.zeros_like(right)], 1)

    plain = predict_probabilities(Sides(), frames, SIZE)
    torch.testing.assert_close(predict_probabilities(Sides(), frames, SIZE, flip=(1, 0)), plain)
    assert not torch.allclose(predict_probabilities(Sides(), frames, SIZE, flip=(0, 1)), plain)


def test_scales_are_averaged_at_the_images_size(frames: Tensor) -> None:
    segmenter = Watched()
    found = predict_probabilities(segmenter, frames, SIZE, flip=(0, 1), scales=(0.5, 1.0, 1.5))
    assert [tuple(seen.shape[-2:]) for seen in segmenter.seen] == [(6, 8)] * 2 + [SIZE] * 2 + [(18, 24)] * 2
    expected = torch.zeros_like(found)
    for scaled in segmenter.seen[::2]:
        for mirrored in (False, True):
            logits = segmenter(scaled.flip(-1) if mirrored else scaled).detach()
            logits = F.interpolate(logits, SIZE, mode="bilinear", align_corners=False)
            expected += (logits.flip(-1) if mirrored else logits).softmax(1) / 6
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("flip", [None, (0, 1)])
@pytest.mark.parametrize(("side", "scale"), [(50, 0.75), (256, 0.7), (33, 1.5)])
def test_a_scale_that_does_not_divide_the_side_moves_nothing(side: int, scale: float, flip: tuple | None) -> None:
    """The brightness of a pixel is its column, and comes back there to about a pixel."""
    columns = ((torch.arange(side) + 0.5) / side * 255).round()
    frames = columns.byte()[None, None, :, None].expand(1, side, side, 3)
    found = predict_probabilities(Columns(), frames, (side, side), flip=flip, scales=(scale,))
    back = (found[0, 0] / found[0, 1]).log() / 2 * 255
    torch.testing.assert_close(back[side // 2, 3:-3], columns[3:-3], atol=max(0.6, 0.1 * 255 / side), rtol=0)


@pytest.mark.parametrize("options", [{}, {"flip": (0, 1)}, {"scales": (0.75, 1.25)}, {"autocast": torch.bfloat16}])
def test_they_are_probabilities_in_full_precision(frames: Tensor, options: dict[str, Any]) -> None:
    found = predict_probabilities(Watched(), frames, SIZE, **options)
    assert found.shape == (2, 2, *SIZE)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.sum(1), torch.ones(2, *SIZE))


def test_autocast_is_for_the_network_alone(frames: Tensor) -> None:
    segmenter = Watched()
    predict_probabilities(segmenter, frames, SIZE)
    predict_probabilities(segmenter, frames, SIZE, autocast=torch.bfloat16)
    assert segmenter.precisions == [torch.float32, torch.bfloat16]


def require_opencv_pixels(frame: np.ndarray, size: tuple[int, int]) -> None:
    """On a CPU exactly, by matrices within one step of a byte."""
    expected = resize_image(frame, size)
    np.testing.assert_array_equal(resize_frame(frame, size), expected)
    images = to_images(torch.from_numpy(frame)[None], size)
    np.testing.assert_allclose(images[0].permute(1, 2, 0) * 255, expected, atol=1e-3)
    images = resize_by_matrix(torch.from_numpy(frame)[None], size)
    assert images.shape == (1, 3, *size)
    assert np.abs(images[0].permute(1, 2, 0).numpy() * 255 - expected).max() <= 1.001


@given(side, side, side, side, st.integers(0, 2**32 - 1))
def test_frames_are_resized_as_in_training(height: int, width: int, rows: int, columns: int, seed: int) -> None:
    require_opencv_pixels(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8), (rows, columns))


@pytest.mark.parametrize("frame", [(1080, 1920), (1024, 1280), (512, 512), (1, 1), (3, 4097), (1079, 1919)])
@pytest.mark.parametrize("size", [(256, 256), (120, 160)])
def test_frames_of_videos_are_resized_as_in_training(frame: tuple[int, int], size: tuple[int, int]) -> None:
    require_opencv_pixels(np.random.default_rng(0).integers(0, 256, (*frame, 3), np.uint8), size)


def test_matrices_of_a_traced_graph_are_not_cached() -> None:
    class Model(nn.Module):
        def forward(self, frames: Tensor) -> Tensor:
            return resize_by_matrix(frames, (33, 44))

    frames = torch.randint(0, 256, (3, 60, 80, 3), dtype=torch.uint8)
    graph = torch.export.export(Model(), (frames,), strict=False)
    images = resize_by_matrix(frames, (33, 44))
    assert type(images) is Tensor
    torch.testing.assert_close(graph.module()(frames), images)
    torch.testing.assert_close(resize_by_matrix(frames[1:2], (33, 44))[0], images[1])


@given(side, side, side, side, st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_class_ids(height: int, width: int, rows: int, columns: int, classes: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = 10 * torch.rand(1, generator=generator) * torch.randn(2, classes, height, width, generator=generator)
    probabilities = scores.softmax(1)
    ids = interpolate_class_ids(probabilities, (rows, columns))
    assert ids.dtype == torch.uint8
    expected = F.interpolate(probabilities, (rows, columns), mode="bilinear", align_corners=False).argmax(1)
    assert ids.tolist() == expected.tolist()
    fast = to_class_ids(probabilities, (rows, columns))
    assert (fast == ids).float().mean() > 0.99, "only ties may differ, which rounding decides"
