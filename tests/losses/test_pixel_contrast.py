import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from suture.losses.pixel_contrast import ClassSums, class_sums, contrasts, pixel_contrast

IGNORE = 255


def pairwise(
    query: Tensor,
    labels: Tensor,
    keys: Tensor,
    key_labels: Tensor,
    *,
    temperature: float = 1.0,
    class_balanced: bool = False,
) -> Tensor | None:
    """The paper's equations 4 to 6, pixel by pixel, from the similarities of all pairs; None where no pixel counts."""
    losses: dict[int, list[Tensor]] = {}
    for features, query_labels, frames, frame_labels in zip(query, labels, keys, key_labels, strict=True):
        for feature, label in zip(features.flatten(1).T, query_labels.flatten().tolist(), strict=True):
            positives: list[Tensor] = []
            negative = torch.zeros((), dtype=query.dtype)
            for key, key_label in zip(frames, frame_labels, strict=True):
                similarity = key.flatten(1).T @ feature / temperature
                same = key_label.flatten() == label
                other = ~same & (key_label.flatten() != IGNORE)
                positives.extend(similarity[same])
                if other.any():
                    negative = negative + similarity[other].mean()
            if positives and label != IGNORE:
                positive = torch.stack(positives).mean()
                loss = -(positive.exp() / (positive.exp() + negative.exp())).log()
                losses.setdefault(label, []).append(loss)
    if not losses:
        return None
    if class_balanced:
        return torch.stack([torch.stack(of_class).mean() for of_class in losses.values()]).mean()
    return torch.stack([loss for of_class in losses.values() for loss in of_class]).mean()


def unit(*shape: int, seed: int) -> Tensor:
    """Random features B … D h w of unit length."""
    return functional.normalize(torch.randn(shape, generator=torch.Generator().manual_seed(seed)), dim=-3)


def shared(keys: ClassSums, queries: int) -> ClassSums:
    """The same key frames for every query."""
    return ClassSums(*(x.expand(queries, *x.shape) for x in keys))


def loss_of(query: Tensor, labels: Tensor, keys: Tensor, key_labels: Tensor, classes: int, **options: Any) -> Tensor:
    sums = class_sums(keys.flatten(0, 1), key_labels.flatten(0, 1), classes)
    own = ClassSums(*(x.unflatten(0, keys.shape[:2]) for x in sums))
    loss, weight = pixel_contrast(query, labels, contrasts(own), **options)
    return loss / weight


@st.composite
def scenes(draw: st.DrawFn) -> dict[str, Any]:
    batch, key_frames, classes, depth = (draw(st.integers(1, high)) for high in (3, 4, 5, 6))
    grid = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    seed = draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)
    # few classes per frame, so that single-class frames, absent classes and frames of nothing but ignore are common
    choices = st.lists(st.sampled_from([*range(classes), IGNORE]), min_size=1, max_size=3)

    def masks(number: int) -> Tensor:
        frames = []
        for _ in range(number):
            choice = torch.tensor(draw(choices))
            frames.append(choice[torch.randint(len(choice), grid, generator=generator)])
        return torch.stack(frames)

    return {
        "query": unit(batch, depth, *grid, seed=seed + 1),
        "labels": masks(batch),
        "keys": unit(batch, key_frames, depth, *grid, seed=seed + 2),
        "key_labels": masks(batch * key_frames).unflatten(0, (batch, key_frames)),
        "classes": classes,
    }


@settings(deadline=None, max_examples=150)
@given(
    scene=scenes(),
    temperature=st.sampled_from([None, 0.2, 2.0]),
    class_balanced=st.booleans(),
)
def test_equals_the_pairwise_loss(scene: dict, temperature: float | None, class_balanced: bool) -> None:
    options: dict[str, Any] = {"class_balanced": class_balanced}
    tensors = scene["labels"], scene["keys"], scene["key_labels"]
    fast_query = scene["query"].clone().requires_grad_()
    slow_query = scene["query"].clone().double().requires_grad_()
    fast = loss_of(fast_query, *tensors, scene["classes"], temperature=temperature, **options)
    slow = pairwise(slow_query, tensors[0], tensors[1].double(), tensors[2], temperature=temperature or 1.0, **options)
    if slow is None:
        assert fast.isnan()  # 0 / 0: the caller sees a weight of 0
        return
    slow.backward()
    fast.backward()
    assert fast.item() == pytest.approx(slow.item(), rel=1e-4)
    assert fast_query.grad is not None
    assert slow_query.grad is not None
    error = (fast_query.grad - slow_query.grad).norm()
    assert error <= 1e-4 * slow_query.grad.norm() + 1e-9


def test_by_hand() -> None:
    """Two key frames; the query pixel of class 0 meets positives in both and negatives in the first only."""
    query = torch.tensor([1.0, 0.0]).view(1, 2, 1, 1)
    keys = torch.tensor([[[0.6, 0.8], [0.0, 1.0]], [[0.8, 0.6], [1.0, 0.0]]]).mT.reshape(1, 2, 2, 1, 2)
    key_labels = torch.tensor([[[[0, 1]], [[0, 0]]]])
    positive, negative = (0.6 + 0.8 + 1.0) / 3, 0.0
    loss = loss_of(query, torch.tensor([[[0]]]), keys, key_labels, classes=2)
    assert loss.item() == pytest.approx(math.log(1 + math.exp(negative - positive)))
    # of class 1: one positive (similarity 0), and the means of the two frames' negatives, 0.6 and 0.9, are summed
    loss = loss_of(query, torch.tensor([[[1]]]), keys, key_labels, classes=2)
    assert loss.item() == pytest.approx(math.log(1 + math.exp(0.6 + 0.9)))
    loss = loss_of(query, torch.tensor([[[1]]]), keys, key_labels, classes=2, temperature=0.5)
    assert loss.item() == pytest.approx(math.log(1 + math.exp((0.6 + 0.9) / 0.5)))


def test_ignored_pixels_get_no_gradient() -> None:
    query = unit(1, 4, 3, 3, seed=0).requires_grad_()
    labels = torch.tensor([[[0, 1, IGNORE], [2, 0, 0], [1, 1, IGNORE]]])
    key_labels = torch.tensor([[[[0, 1], [1, IGNORE]]]])
    loss_of(query, labels, unit(1, 1, 4, 2, 2, seed=1), key_labels, classes=3).backward()
    touched = query.grad.abs().sum(1) > 0  # type: ignore[union-attr]
    assert touched.tolist() == ((labels == 0) | (labels == 1)).tolist()  # no key is of class 2


def test_contrasts_add_up() -> None:
    keys = ClassSums(torch.randn(2, 5, 3, 4), torch.randint(0, 9, (2, 5, 3)).float())
    first, last = (ClassSums(*(x[:, part] for x in keys)) for part in (slice(0, 2), slice(2, 5)))
    whole, parts = contrasts(keys), contrasts(first) + contrasts(last)
    for name in ("positive_sums", "positive_counts", "negatives"):
        torch.testing.assert_close(getattr(whole, name), getattr(parts, name), msg=name)


def test_a_bank_is_the_expectation_over_all_draws() -> None:
    drawn = 2
    labels = torch.randint(0, 3, (5, 3, 3), generator=torch.Generator().manual_seed(1))
    labels[0] = 1  # a frame of a single class, without negatives for it
    bank = class_sums(unit(5, 4, 3, 3, seed=0), labels, 3)
    draws = [
        contrasts(ClassSums(*(x[list(ids)][None] for x in bank))) for ids in itertools.combinations(range(5), drawn)
    ]
    expected = contrasts(shared(bank, 1), torch.full((1, 5), drawn / 5))
    for name in ("positive_sums", "positive_counts", "negatives"):
        mean = torch.stack([getattr(draw, name) for draw in draws]).mean(0)
        torch.testing.assert_close(getattr(expected, name), mean, msg=name)


def test_one_class_that_fills_the_frame_leaves_the_negatives_exact() -> None:
    key = unit(1, 8, 200, 200, seed=0).abs()  # all alike, so that the class's sum is large
    labels = torch.zeros(1, 200, 200, dtype=torch.long)
    labels[0, 0, 0] = 1
    negative = contrasts(shared(class_sums(key, labels, 2), 1)).negatives[0, 0]
    torch.testing.assert_close(negative, key[0, :, 0, 0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("autocast", [False, True])
def test_bf16_is_finite_and_close(autocast: bool) -> None:
    query, keys = unit(2, 32, 8, 8, seed=0), unit(2, 3, 32, 8, 8, seed=1)
    labels, key_labels = torch.randint(0, 4, (2, 8, 8)), torch.randint(0, 4, (2, 3, 8, 8))
    exact = loss_of(query, labels, keys, key_labels, 4)
    rounded = query.bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = loss_of(rounded, labels, keys.bfloat16(), key_labels, 4)
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=0.01)
    assert rounded.grad is not None
    assert rounded.grad.isfinite().all()


def test_autocast_does_not_round_the_sums() -> None:
    features, labels = unit(2, 8, 9, 9, seed=0), torch.randint(0, 3, (2, 9, 9))
    plain = class_sums(features, labels, 3)
    with torch.autocast("cpu", torch.bfloat16):
        cast = class_sums(features, labels, 3)
    assert torch.equal(plain.sums, cast.sums)


def test_class_balance_spans_processes() -> None:
    """Two halves of a batch with `all_sum`, added up, are the loss of the whole batch."""
    query, keys = unit(4, 4, 3, 3, seed=0), unit(4, 2, 4, 3, 3, seed=1)
    labels, key_labels = torch.randint(0, 3, (4, 3, 3)), torch.randint(0, 3, (4, 2, 3, 3))
    labels[:2] = 1  # the halves differ in their classes
    against = [
        contrasts(ClassSums(*(x.unflatten(0, (-1, 2)) for x in class_sums(k.flatten(0, 1), m.flatten(0, 1), 3))))
        for k, m in ((keys, key_labels), (keys[:2], key_labels[:2]), (keys[2:], key_labels[2:]))
    ]
    loss, weight = pixel_contrast(query, labels, against[0], class_balanced=True)
    assert weight.item() == pytest.approx(3)
    totals = torch.stack([(labels == c).sum() for c in range(3)]).float()
    halves = [
        pixel_contrast(q, m, a, class_balanced=True, all_sum=lambda _: totals)
        for q, m, a in ((query[:2], labels[:2], against[1]), (query[2:], labels[2:], against[2]))
    ]
    torch.testing.assert_close(sum(half[0] for half in halves), loss)
    torch.testing.assert_close(sum(half[1] for half in halves), weight)
