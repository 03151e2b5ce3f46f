"""Dynamic weights against the rule of the paper, said pixel by pixel."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from suture.losses.cross_entropy import cross_entropy
from suture.losses.dynamic_weights import dynamic_weights

IGNORE = 255
powers = st.sampled_from([0.0, 1.0, 3.0, 5.0])


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of sure and unsure models, labels that are often what they say, and any confidence."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    batch, classes = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    height, width = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    logits = draw(st.sampled_from([0.3, 3.0, 30.0])) * torch.randn(batch, classes, height, width, generator=generator)
    labels = torch.randint(classes, (batch, height, width), generator=generator)
    agree = torch.rand(labels.shape, generator=generator) < 0.5
    labels = torch.where(agree, logits.argmax(1), labels)
    labels[torch.rand(labels.shape, generator=generator) < draw(st.sampled_from([0.0, 0.4, 1.0]))] = IGNORE
    confidence = torch.rand(labels.shape, generator=generator)
    return logits, labels.to(draw(st.sampled_from([torch.uint8, torch.int64]))), confidence


def slow(logits: Tensor, labels: Tensor, confidence: Tensor, agreed: float, disputed: float) -> tuple[Tensor, int]:
    """Σ w · cross entropy, one pixel after the other, and the number of pixels with a label."""
    total, count = logits.sum() * 0, 0
    for b, y, x in torch.cartesian_prod(*map(torch.arange, labels.shape)).reshape(-1, 3).tolist():
        label = int(labels[b, y, x])
        if label == IGNORE:
            continue
        count += 1
        of_pixel = logits[b, :, y, x].log_softmax(0)
        probabilities = [math.exp(value) for value in of_pixel.tolist()]
        choice = max(range(len(probabilities)), key=probabilities.__getitem__)
        if choice == label:
            weight = probabilities[label] ** agreed
        elif probabilities[choice] > confidence[b, y, x]:
            weight = 0.0
        else:
            weight = probabilities[label] ** disputed
        total = total - weight * of_pixel[label]
    return total, count


@given(batches(), powers, powers)
def test_loss_is_the_slow_one(batch: tuple[Tensor, Tensor, Tensor], agreed: float, disputed: float) -> None:
    logits, labels, confidence = batch
    logits.requires_grad_()
    weights = dynamic_weights(logits, labels, confidence, agreed, disputed)
    assert not weights.requires_grad
    loss, count = cross_entropy(logits, labels, weights)
    expected, pixels = slow(logits, labels, confidence, agreed, disputed)
    assert count == pixels
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        torch.autograd.grad(loss, logits)[0], torch.autograd.grad(expected, logits)[0], rtol=1e-4, atol=1e-5
    )


def test_each_case() -> None:
    """A model that says 0.6, 0.3, 0.1: agreed, disputed with a surer and a less sure teacher, at the limit, ignored."""
    logits = torch.tensor([0.6, 0.3, 0.1]).log().view(1, 3, 1, 1).expand(1, 3, 1, 5)
    labels = torch.tensor([[[0, 1, 1, 2, IGNORE]]])
    sure = logits.softmax(1).amax()
    confidence = torch.stack([torch.tensor(0.1), sure + 0.1, sure - 0.1, sure, sure]).view(1, 1, 5)
    weights = dynamic_weights(logits, labels, confidence, agreed=2, disputed=3)
    torch.testing.assert_close(weights[0, 0, :4], torch.tensor([0.36, 0.027, 0.0, 0.001]))
    assert weights.isfinite().all()


def test_bf16_logits_give_fp32_weights() -> None:
    logits = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    labels, confidence = logits.float().argmax(1), torch.ones(1, 8, 8)
    weights = dynamic_weights(logits, labels, confidence, agreed=5, disputed=5)
    assert weights.dtype == torch.float32
    assert torch.equal(weights, dynamic_weights(logits.float(), labels, confidence, agreed=5, disputed=5))
