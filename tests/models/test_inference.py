"""Probabilities are means over the versions of the images that were asked for."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from suture.models.inference import probabilities


class Columns(nn.Module):
    """A segmenter whose logits are the first channel and its negative."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([images[:, :1], -images[:, :1]], 1)


class Watched(nn.Module):
    """A segmenter of its own kind: what it says depends on the pixel, its place and the image's size."""

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
def images() -> Tensor:
    return torch.rand(2, 3, 12, 16, generator=torch.Generator().manual_seed(0))


def test_one_version_is_the_softmax(images: Tensor) -> None:
    segmenter = Watched()
    found = probabilities(segmenter, images)
    torch.testing.assert_close(found, segmenter(images).softmax(1).detach())
    assert not found.requires_grad
    assert len(segmenter.seen) == 2


def test_a_flip_averages_probabilities_of_the_image_and_its_mirror(images: Tensor) -> None:
    segmenter = Watched()
    there = segmenter(images).softmax(1)
    back = segmenter(images.flip(-1)).softmax(1).flip(-1)
    torch.testing.assert_close(probabilities(segmenter, images, flip=True), ((there + back) / 2).detach())
    # What is averaged are probabilities, not logits.
    logits = (segmenter(images) + segmenter(images.flip(-1)).flip(-1)) / 2
    assert not torch.allclose(probabilities(segmenter, images, flip=True), logits.softmax(1), atol=1e-3)


def test_a_flip_makes_the_answer_mirror_with_the_image(images: Tensor) -> None:
    segmenter = Watched()
    mirrored = probabilities(segmenter, images.flip(-1), flip=True)
    torch.testing.assert_close(mirrored, probabilities(segmenter, images, flip=True).flip(-1))


def test_scales_are_averaged_at_the_images_size(images: Tensor) -> None:
    segmenter = Watched()
    found = probabilities(segmenter, images, flip=True, scales=(0.5, 1.0, 1.5))
    assert [tuple(seen.shape[-2:]) for seen in segmenter.seen] == [(6, 8)] * 2 + [(12, 16)] * 2 + [(18, 24)] * 2
    expected = torch.zeros_like(found)
    for scaled in segmenter.seen[::2]:
        for mirrored in (False, True):
            logits = segmenter(scaled.flip(-1) if mirrored else scaled).detach()
            logits = F.interpolate(logits, (12, 16), mode="bilinear", align_corners=False)
            expected += (logits.flip(-1) if mirrored else logits).softmax(1) / 6
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize(("side", "scale"), [(50, 0.75), (256, 0.7), (33, 1.5)])
def test_a_scale_that_does_not_divide_the_side_moves_nothing(side: int, scale: float, flip: bool) -> None:
    """Every pixel says its own column: what comes back says the same there, to a tenth of a pixel."""
    columns = torch.arange(side) + 0.5
    found = probabilities(Columns(), (columns / side).expand(1, 3, side, side), flip=flip, scales=(scale,))
    said = (found[0, 0] / found[0, 1]).log() * side / 2
    torch.testing.assert_close(said[side // 2, 3:-3], columns[3:-3], atol=0.1, rtol=0)


@pytest.mark.parametrize("options", [{}, {"flip": True}, {"scales": (0.75, 1.25)}, {"autocast": torch.bfloat16}])
def test_they_are_probabilities_in_full_precision(images: Tensor, options: dict[str, Any]) -> None:
    found = probabilities(Watched(), images, **options)
    assert found.shape == (2, 2, 12, 16)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.sum(1), torch.ones(2, 12, 16))


def test_autocast_is_for_the_network_alone(images: Tensor) -> None:
    segmenter = Watched()
    probabilities(segmenter, images)
    probabilities(segmenter, images, autocast=torch.bfloat16)
    assert segmenter.precisions == [torch.float32, torch.bfloat16]
