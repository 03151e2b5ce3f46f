"""Pixel contrast of PGV-CL, in time and memory linear in the pixels.

With unit-length features f, labels ŷ and the key frames k of a query frame, the paper's loss of a query pixel i is

    S⁺_i = mean of f_i·f_j over the key pixels j of class ŷ_i, in all key frames together
    S⁻_i = Σ_k mean of f_i·f_j over the pixels j of key frame k that are of another class
    L_i  = −log( e^{S⁺_i} / (e^{S⁺_i} + e^{S⁻_i}) ) = softplus(S⁻_i − S⁺_i)

and L is its mean over the query pixels. A mean of dot products is the dot product with the mean, so the similarities of
all pixel pairs are never needed. Let G[k,c] be the sum of the features of class c in key frame k, and n[k,c] their
number (`ClassSums`). The positives and negatives of a query pixel of class c (`Contrasts`) are

    P[c] = Σ_k G[k,c] / Σ_k n[k,c]        N[c] = Σ_k (Σ_{c'≠c} G[k,c']) / (Σ_{c'≠c} n[k,c'])

and L_i = softplus(f_i · (N[ŷ_i] − P[ŷ_i])): exactly the value and gradient of the paper, by one C×D matrix per frame.

A pixel with a label outside 0 … C−1 (255 is ignore) is left out on both sides. A query pixel whose class is in none of
its key frames is left out of the mean. A key frame without negatives adds 0 to S⁻.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from suture.losses.precision import full_precision


class ClassSums(NamedTuple):
    """Summary of key frames for the loss: a few kB per frame, at any resolution."""

    sums: Tensor
    """… C D: sum of the features of each class (fp32)"""
    counts: Tensor
    """… C: number of pixels of each class (fp32)"""


class Contrasts(NamedTuple):
    """Positives and negatives of each query frame's pixels; `+` adds those of more key frames."""

    positive_sums: Tensor
    """B C D"""
    positive_counts: Tensor
    """B C"""
    negatives: Tensor
    """B C D: sum over key frames of the mean feature of all other classes"""

    def __add__(self, other: "Contrasts") -> "Contrasts":  # type: ignore[override]
        return Contrasts(*(a + b for a, b in zip(self, other, strict=True)))


def class_sums(features: Tensor, labels: Tensor, classes: int) -> ClassSums:
    """Sum the features (K D h w) of each class in each key frame, given its labels (K h w).

    >>> features = torch.tensor([[[[1.0, 2.0, 4.0]]]])  # one frame, one channel, three pixels
    >>> class_sums(features, torch.tensor([[[0, 0, 255]]]), classes=2).sums.tolist()
    [[[3.0], [0.0]]]
    """
    members = _members(labels, classes)
    with full_precision(features):
        return ClassSums(members @ features.float().flatten(2).mT, members.sum(-1))


def contrasts(keys: ClassSums, weights: Tensor | None = None) -> Contrasts:
    """Combine the key frames (B K C …) of each query.

    Args:
        weights: B K, 1 by default. Weights N/M for M frames give the expectation over draws of N of these frames.
    """
    sums, counts = keys
    if weights is None:
        weights = counts.new_ones(counts.shape[:2])
    others = 1 - torch.eye(counts.shape[-1], device=counts.device)
    with full_precision(sums):
        # Not `total - own`: where one class fills the frame, that difference is only rounding noise.
        negatives = _mean(others @ sums, (counts @ others)[..., None])
        return Contrasts(*(torch.einsum("bk,bk...->b...", weights, x) for x in (sums, counts, negatives)))


def pixel_contrast(
    query: Tensor,
    labels: Tensor,
    against: Contrasts,
    *,
    temperature: float | None = None,
    class_balanced: bool = False,
    all_sum: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Contrast the pixels of query frames (features B D h w of unit length, labels B h w) with their keys.

    Args:
        temperature: Divisor of S⁺ and S⁻; not in the paper.
        class_balanced: Give every class of the batch the same total weight; not in the paper.
        all_sum: Sum of a tensor over all processes, for class weights over the global batch.

    Returns:
        The weighted sum of the pixels' losses, and the sum of their weights (0 where no pixel takes part). The loss is
        the quotient of both, summed over all processes.

    >>> query, key = torch.tensor([0.6, 0.8]).view(1, 2, 1, 1), torch.tensor([1.0, 0.0]).view(1, 2, 1, 1)
    >>> labels = torch.zeros(1, 1, 1, dtype=torch.long)
    >>> keys = ClassSums(*(x[None] for x in class_sums(key, labels, classes=1)))  # one query with one key frame
    >>> loss, weight = pixel_contrast(query, labels, contrasts(keys))
    >>> round((loss / weight).item(), 4)  # S⁺ = 0.6, no negatives: log(1 + e^-0.6)
    0.4375
    """
    classes = against.positive_counts.shape[-1]
    labels = labels.flatten(1).long()
    valid = (labels >= 0) & (labels < classes)
    own = labels.where(valid, 0)
    with full_precision(query):
        direction = against.negatives - _mean(against.positive_sums, against.positive_counts[..., None])
        if temperature is not None:
            direction = direction / temperature
        # S⁻ − S⁺ of every pixel for every class: B hw C. With pixels as rows, features with channels last need no copy.
        difference = query.flatten(2).mT @ direction.to(query.dtype).mT
        losses = functional.softplus(difference.gather(2, own[..., None]).squeeze(2).float())

        has_positives = (against.positive_counts > 0).gather(1, own)
        weights = (valid & has_positives).float()
        if class_balanced:
            totals = torch.einsum("bcp,bp->c", _members(labels, classes), weights)
            weights = _mean(weights, (totals if all_sum is None else all_sum(totals))[own])
        return (weights * losses).sum(), weights.sum()


def _members(labels: Tensor, classes: int) -> Tensor:
    """One-hot classes of pixels (B …): B C hw."""
    ids = torch.arange(classes, device=labels.device)
    return (labels.flatten(1)[:, None] == ids[:, None]).float()


def _mean(total: Tensor, count: Tensor) -> Tensor:
    """Mean, 0 of nothing."""
    return total / count.clamp(min=torch.finfo(count.dtype).tiny)
