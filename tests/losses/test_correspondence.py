"""Labels are carried as by an obvious search, exactly so where a scene has only moved."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from suture.losses.correspondence import affinity, carry, cycle_consistent, descriptors, from_cells, join, to_cells

SHAPES = st.tuples(st.integers(1, 2), st.integers(1, 4), st.integers(1, 5))


def frames(shape: tuple[int, int, int], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features of two frames, of unit length, and values of the second one."""
    generator = torch.Generator().manual_seed(seed)
    batch, height, width = shape
    query, key = (F.normalize(torch.randn(batch, 6, height, width, generator=generator), dim=1) for _ in range(2))
    return query, key, torch.rand(batch, 3, height, width, generator=generator)


def candidates(query: Tensor, key: Tensor, y: int, x: int, radius: int) -> list[tuple[float, int, int]]:
    """Similarity and place of the key cells (of one frame, D h w) in the window around y, x; the most alike first."""
    found = []
    for v in range(max(0, y - radius), min(key.shape[1], y + radius + 1)):
        for u in range(max(0, x - radius), min(key.shape[2], x + radius + 1)):
            found.append((torch.dot(query[:, y, x], key[:, v, u]).item(), v, u))
    return sorted(found, reverse=True)


@given(shape=SHAPES, seed=st.integers(0, 2**31), radius=st.integers(0, 4), top=st.integers(1, 6))
def test_carries_as_the_slow_version(shape: tuple[int, int, int], seed: int, radius: int, top: int) -> None:
    query, key, values = frames(shape, seed)
    carried = carry(affinity(query, key, radius), values, top, 0.2)
    for b in range(shape[0]):
        for y in range(shape[1]):
            for x in range(shape[2]):
                best = candidates(query[b], key[b], y, x, radius)[:top]
                weights = [math.exp(alike / 0.2) for alike, _, _ in best]
                expected = sum(w * values[b, :, v, u] for w, (_, v, u) in zip(weights, best, strict=True)) / sum(
                    weights
                )
                torch.testing.assert_close(carried[b, :, y, x], expected, rtol=1e-4, atol=1e-5)


@given(shape=SHAPES, seed=st.integers(0, 2**31), radius=st.integers(0, 4), within=st.integers(0, 2))
def test_comes_back_as_in_the_slow_version(shape: tuple[int, int, int], seed: int, radius: int, within: int) -> None:
    query, key, _ = frames(shape, seed)
    found = cycle_consistent(affinity(query, key, radius), query, within)
    for b in range(shape[0]):
        for y in range(shape[1]):
            for x in range(shape[2]):
                _, v, u = candidates(query[b], key[b], y, x, radius)[0]
                _, home_y, home_x = candidates(key[b], query[b], v, u, radius)[0]
                assert found[b, y, x] == (max(abs(home_y - y), abs(home_x - x)) <= within)


@pytest.mark.parametrize(("down", "right"), [(0, 0), (1, 0), (-1, 2), (2, -2)])
def test_labels_follow_a_scene_that_moved(down: int, right: int) -> None:
    """Exactly, wherever the scene is in both frames; and what is not finds no way back, at least mostly."""
    size, pad = 8, 2
    generator = torch.Generator().manual_seed(3)
    scene = torch.rand(1, 32, size + 2 * pad, size + 2 * pad, generator=generator)  # positive, as after a ReLU
    labels = torch.randint(0, 4, (1, size + 2 * pad, size + 2 * pad), generator=generator)
    now = (..., slice(pad, pad + size), slice(pad, pad + size))
    then = (..., slice(pad - down, pad - down + size), slice(pad - right, pad - right + size))
    query, key = descriptors(scene[now], scene[then])
    alike = affinity(query, key, radius=2)
    shares = to_cells(labels[then], 4, 1)
    carried, back = carry(alike, shares, 1, 0.1), cycle_consistent(alike, query, 0)
    rows, columns = torch.arange(size) + down, torch.arange(size) + right
    both = ((rows >= 0) & (rows < size))[:, None] & ((columns >= 0) & (columns < size))
    assert back[0][both].all()
    assert torch.equal(carried[0].argmax(0)[both], labels[now][0][both])
    assert (carried.amax(1)[0][both] == 1).all()
    if down or right:
        assert back[0][~both].float().mean() < 0.5


def test_beyond_the_window_nothing_is_found() -> None:
    query, key, _ = frames((1, 1, 5), 0)
    alike = affinity(query, key, 1)
    apart = (torch.arange(5)[:, None] - torch.arange(5)).abs()
    assert torch.equal(alike[0].isinf(), apart > 1)


def test_descriptors_do_not_know_what_all_cells_share() -> None:
    query, key, _ = frames((2, 3, 4), 1)
    shared = torch.randn(2, 6, 1, 1)
    for one, other in zip(descriptors(query, key), descriptors(query + shared, key + shared), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(one.norm(dim=1), torch.ones(2, 3, 4))


@given(height=st.integers(1, 9), width=st.integers(1, 9), cell=st.sampled_from([1, 2, 4]), seed=st.integers(0, 999))
def test_shares_of_cells_are_counted(height: int, width: int, cell: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (1, height, width), generator=generator)
    labels[labels == 3] = 255
    shares = to_cells(labels, 3, cell)
    assert shares.shape[2:] == (-(-height // cell), -(-width // cell))
    for y in range(shares.shape[2]):
        for x in range(shares.shape[3]):
            inside = labels[0, y * cell : (y + 1) * cell, x * cell : (x + 1) * cell]
            for c in range(3):
                assert shares[0, c, y, x].item() == pytest.approx((inside == c).float().mean().item())


def test_values_of_cells_lie_where_their_cells_do() -> None:
    values = torch.tensor([0.0, 1.0]).expand(1, 1, 2, 2)
    spread = from_cells(values, 4, (7, 6))
    assert spread.shape == (1, 1, 7, 6)
    torch.testing.assert_close(spread[0, 0, 0], torch.tensor([0, 0, 0.125, 0.375, 0.625, 0.875]))


@given(st.integers(0, 99), st.integers(2, 5), st.floats(0, 1))
def test_joins_by_bayes_rule(seed: int, classes: int, right: float) -> None:
    """Against the sum over both cases: the carried label is right, or it is any class alike."""
    generator = torch.Generator().manual_seed(seed)
    belief, label = torch.rand(2, classes, generator=generator).softmax(1)
    joint = [p * (right * q + (1 - right) / classes) for p, q in zip(belief.tolist(), label.tolist(), strict=True)]
    joined = join(belief.view(1, -1, 1, 1), right * label.view(1, -1, 1, 1)).flatten()
    torch.testing.assert_close(joined, torch.tensor(joint) / sum(joint))


def test_a_label_that_does_not_decide_changes_nothing() -> None:
    """Neither where none was carried, nor on the edge of two classes."""
    belief = torch.tensor([0.98, 0.02]).view(1, 2, 1, 1).expand(1, 2, 1, 2)
    carried = torch.tensor([[0.0, 0.25], [0.0, 0.25]]).view(1, 2, 1, 2)
    torch.testing.assert_close(join(belief, carried), belief)
