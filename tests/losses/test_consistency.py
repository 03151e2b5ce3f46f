import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from suture.losses.consistency import certain_consistency, entropy


def predictions(seed: int, shape: tuple[int, ...], scale: float) -> Tensor:
    return (scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).softmax(1)


shapes = st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 4), st.integers(1, 4))


@given(seed=st.integers(0, 2**31), shape=shapes, scale=st.sampled_from([0.0, 1.0, 300.0]))
def test_entropy_equals_the_slow_version(seed: int, shape: tuple[int, ...], scale: float) -> None:
    probabilities = predictions(seed, shape, scale)
    found = entropy(probabilities)
    for b in range(shape[0]):
        for y in range(shape[2]):
            for x in range(shape[3]):
                p = probabilities[b, :, y, x].tolist()
                assert math.isclose(found[b, y, x], -sum(q * math.log(q) for q in p if q > 0), abs_tol=1e-5)
    assert (found <= math.log(shape[1]) + 1e-5).all()


@given(seed=st.integers(0, 2**31), shape=shapes, limit=st.sampled_from([0.0, 0.5, 1.0, 9.0]))
def test_consistency_equals_the_slow_version(seed: int, shape: tuple[int, ...], limit: float) -> None:
    """Σ mask·(p_student − p_teacher)² / (C·Σ mask), pixel by pixel and class by class."""
    student, teacher = predictions(seed, shape, 1.0).requires_grad_(), predictions(seed + 1, shape, 1.0)
    certain = entropy(teacher) < limit
    total, pixels = student.sum() * 0, 0
    for b in range(shape[0]):
        for y in range(shape[2]):
            for x in range(shape[3]):
                if certain[b, y, x]:
                    pixels += 1
                    for c in range(shape[1]):
                        total = total + (student[b, c, y, x] - teacher[b, c, y, x]) ** 2
    loss, weight = certain_consistency(student, teacher, certain)
    assert weight == pixels
    torch.testing.assert_close(loss, total / shape[1], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(*(torch.autograd.grad(v, student)[0] for v in (loss, total / shape[1])))
