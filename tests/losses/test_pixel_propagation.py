import cmath
import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from suture.data.sampling.augment import UNCHANGED, ViewDraw, outline
from suture.losses.pixel_propagation import Cells, cells, positive_pairs, propagate, propagation_loss


def unit(*shape: int, seed: int) -> Tensor:
    features = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
    return F.normalize(features, dim=1).requires_grad_()


def slow_propagate(pixels: Tensor, values: Tensor, sharpness: float) -> Tensor:
    """Pixel by pixel, as the paper has it; the cosine of unit vectors is their product."""
    out = []
    for image, value in zip(pixels, values, strict=True):
        columns = []
        for i in image.flatten(1).unbind(1):
            total = torch.zeros_like(i)
            for j, g in zip(image.flatten(1).unbind(1), value.flatten(1).unbind(1), strict=True):
                total = total + max(torch.dot(i, j), torch.zeros(())) ** sharpness * g
            columns.append(total / total.norm())
        out.append(torch.stack(columns, 1))
    return torch.stack(out).view_as(values)


@given(
    seed=st.integers(0, 2**31),
    shape=st.tuples(*(st.integers(1, 3) for _ in range(4))),
    sharpness=st.sampled_from([1.0, 2.0, 3.5]),
)
def test_propagates_as_the_slow_version(seed: int, shape: tuple[int, ...], sharpness: float) -> None:
    batch, depth, height, width = shape
    pixels, values = (unit(batch, depth + 1, height, width, seed=seed + n) for n in (0, 1))
    fast, slow = propagate(pixels, values, sharpness), slow_propagate(pixels, values, sharpness)
    torch.testing.assert_close(fast, slow, rtol=1e-4, atol=1e-5)
    direction = unit(*fast.shape, seed=seed + 2).detach()
    for a, b in zip(*(torch.autograd.grad((z * direction).sum(), (pixels, values)) for z in (fast, slow)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


boxes = st.tuples(
    *(st.floats(0, 300), st.floats(0, 200), st.floats(20, 300), st.floats(20, 200)),
    *(st.booleans(), st.just(0.0) | st.floats(-180, 180)),
)


def slow_centres(box: tuple[float, ...], size: tuple[int, int], stride: int) -> list[tuple[float, float]]:
    """Tilted about the middle of the box."""
    left, top, width, height, flip, degrees = box
    turn = cmath.exp(1j * math.radians(degrees))
    found = []
    for row in range(math.ceil(size[0] / stride)):
        for column in range(math.ceil(size[1] / stride)):
            u, v = (column + 0.5) * stride / size[1], (row + 0.5) * stride / size[0]
            place = complex(((1 - u if flip else u) - 0.5) * width, (v - 0.5) * height) * turn
            found.append((left + width / 2 + place.real, top + height / 2 + place.imag))
    return found


@given(
    one=boxes,
    other=boxes,
    size=st.tuples(st.integers(9, 32), st.integers(9, 32)),
    stride=st.sampled_from([4, 8]),
    distance=st.floats(0.2, 3),
)
def test_pairs_are_those_near_each_other_in_the_scene(
    one: tuple[float, ...], other: tuple[float, ...], size: tuple[int, int], stride: int, distance: float
) -> None:
    def views(box: tuple[float, ...]) -> Cells:
        draw = ViewDraw(np.array(box[:4]) / (600, 400, 600, 400), False, UNCHANGED, box[5])
        tilted = np.concatenate(outline(draw, (400, 600)))
        return cells(torch.from_numpy(tilted).float()[None], torch.tensor([box[4]]), size, stride)

    pairs = positive_pairs(views(one), views(other), distance)[0]
    diagonal = max(math.hypot(box[2] * stride / size[1], box[3] * stride / size[0]) for box in (one, other))
    for i, a in enumerate(slow_centres(one, size, stride)):
        for j, b in enumerate(slow_centres(other, size, stride)):
            apart = math.dist(a, b) / diagonal
            if abs(apart - distance) > 1e-4:
                assert pairs[i, j].item() == (apart < distance)


def test_a_view_pairs_with_its_mirror_image() -> None:
    box = torch.tensor([[30.0, 10.0, 80.0, 80.0, 0.0, 0.0]])
    plain, mirrored = (cells(box, torch.tensor([flip]), (16, 16), 4) for flip in (False, True))
    pairs = positive_pairs(plain, mirrored, distance=0.7).view(4, 4, 4, 4)
    for row, column in torch.cartesian_prod(torch.arange(4), torch.arange(4)):
        assert pairs[row, column, row, 3 - column]
    # 0.7 of a square's diagonal is just short of its side: neighbours are no pairs.
    assert pairs.sum() == 16


@given(seed=st.integers(0, 2**31), batch=st.integers(1, 3), share=st.sampled_from([0.0, 0.2, 0.7]))
def test_loss_equals_the_slow_version(seed: int, batch: int, share: float) -> None:
    z, x = unit(batch, 3, 2, 3, seed=seed), unit(batch, 3, 2, 3, seed=seed + 1)
    positive = torch.rand(batch, 6, 6, generator=torch.Generator().manual_seed(seed)) < share
    total, views = z.sum() * 0, 0
    for b in range(batch):
        cosines = [
            torch.dot(z[b].flatten(1)[:, i], x[b].flatten(1)[:, j])
            for i in range(6)
            for j in range(6)
            if positive[b, i, j]
        ]
        if cosines:
            total, views = total - torch.stack(cosines).mean(), views + 1
    loss, count = propagation_loss(z, x, positive)
    torch.testing.assert_close(loss, total)
    assert count == views
    torch.testing.assert_close(*(torch.autograd.grad(value, z)[0] for value in (loss, total)))
