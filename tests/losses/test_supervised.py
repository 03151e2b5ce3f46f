import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from suture.losses.cross_entropy import cross_entropy
from suture.losses.hard_pixels import hard_pixels

IGNORE = 255


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Logits and labels: images without any label, labels of all types, easy and hard pixels."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    batch, classes = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    height, width = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    logits = draw(st.sampled_from([0.3, 3.0, 12.0])) * torch.randn(batch, classes, height, width, generator=generator)
    labels = torch.randint(classes, (batch, height, width), generator=generator)
    if draw(st.booleans()):  # mostly right: few hard pixels
        right = torch.rand(labels.shape, generator=generator) < 0.9
        labels = torch.where(right, logits.argmax(1), labels)
    ignored = torch.rand(labels.shape, generator=generator) < draw(st.sampled_from([0.0, 0.4, 1.0]))
    ignored[0] |= draw(st.booleans())
    labels[ignored] = IGNORE
    return logits, labels.to(draw(st.sampled_from([torch.uint8, torch.int32, torch.int64])))


def slow_pixels(logits: Tensor, labels: Tensor) -> list[list[Tensor]]:
    """Per image, the cross entropy of each labelled pixel, one by one."""
    images = []
    for image, truth in zip(logits, labels, strict=True):
        pixels = []
        for y in range(truth.shape[0]):
            for x in range(truth.shape[1]):
                if truth[y, x] != IGNORE:
                    pixels.append(torch.logsumexp(image[:, y, x], 0) - image[int(truth[y, x]), y, x])
        images.append(pixels)
    return images


def slow_hard_pixels(logits: Tensor, labels: Tensor, threshold: float, keep: float) -> tuple[Tensor, int]:
    total, count = logits.sum() * 0, 0
    for pixels in slow_pixels(logits, labels):
        worst = sorted(pixels, key=lambda loss: -loss.item())
        above = [loss for loss in worst if loss.item() > -math.log(threshold)]
        chosen = max(above, worst[: math.ceil(keep * len(worst))], key=len)
        total, count = total + sum(chosen), count + len(chosen)
    return total, count


def compare(ours: tuple[Tensor, Tensor], expected: tuple[Tensor, int], logits: Tensor) -> None:
    torch.testing.assert_close(ours[0], expected[0], rtol=1e-4, atol=1e-5)
    assert ours[1].item() == expected[1]
    (gradient,) = torch.autograd.grad(ours[0], logits)
    (wanted,) = torch.autograd.grad(expected[0], logits)
    torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-5)


@given(batches(), st.booleans())
def test_cross_entropy_is_the_slow_one(batch: tuple[Tensor, Tensor], weighted: bool) -> None:
    logits, labels = batch[0].requires_grad_(), batch[1]
    weights = torch.rand(labels.shape) if weighted else torch.ones(labels.shape)
    pixels = [loss for image in slow_pixels(logits, labels) for loss in image]
    total = logits.sum() * 0
    for loss, weight in zip(pixels, weights[labels != IGNORE], strict=True):
        total = total + loss * weight
    compare(cross_entropy(logits, labels, weights if weighted else None), (total, len(pixels)), logits)


@given(batches(), st.sampled_from([0.5, 0.7, 0.95]), st.sampled_from([1 / 16, 1 / 4, 1.0]))
def test_hard_pixels_are_the_slow_ones(batch: tuple[Tensor, Tensor], threshold: float, keep: float) -> None:
    logits, labels = batch[0].requires_grad_(), batch[1]
    expected = slow_hard_pixels(logits, labels, threshold, keep)
    compare(hard_pixels(logits, labels, threshold=threshold, keep=keep), expected, logits)


def test_sums_of_parts_give_the_mean_of_the_whole() -> None:
    """What makes the loss of two processes that of one."""
    torch.manual_seed(0)
    logits, labels = torch.randn(4, 3, 8, 8), torch.randint(3, (4, 8, 8))
    labels[0, :5] = IGNORE
    for loss in (cross_entropy, hard_pixels):
        total, count = loss(logits, labels)
        parts = [loss(logits[i : i + 2], labels[i : i + 2]) for i in (0, 2)]
        torch.testing.assert_close(sum(part[0] for part in parts), total)
        assert sum(part[1] for part in parts) == count


def test_hard_pixels_of_an_easy_image() -> None:
    logits = torch.zeros(1, 2, 16, 16)
    logits[:, 0] = 8.0
    labels = torch.zeros(1, 16, 16, dtype=torch.uint8)
    assert hard_pixels(logits, labels)[1] == 16
    labels[0, :8] = IGNORE
    assert hard_pixels(logits, labels)[1] == 8
    labels[0, 15, :12] = 1
    assert hard_pixels(logits, labels)[1] == 12


@pytest.mark.parametrize("loss", [cross_entropy, hard_pixels])
def test_nan_is_not_hidden(loss: type) -> None:
    logits = torch.zeros(1, 2, 8, 8)
    logits[0, 0, 3, 3] = torch.nan
    assert loss(logits, torch.zeros(1, 8, 8, dtype=torch.long))[0].isnan()


@pytest.mark.parametrize("loss", [cross_entropy, hard_pixels])
def test_bf16_logits_are_summed_in_fp32(loss: type) -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 3, 32, 32).bfloat16(), torch.randint(3, (2, 32, 32))
    total, count = loss(logits, labels)
    expected = loss(logits.float(), labels)
    assert total.dtype == torch.float32
    assert total == expected[0]
    assert count == expected[1]
