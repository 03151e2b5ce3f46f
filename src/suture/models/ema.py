"""Exponential moving average (EMA) of a module's weights."""

import copy
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

Pairs = list[tuple[Tensor, Tensor]]


class MomentumCopy(nn.Module):
    """Deep copy of `online`, at `.module`, that `update` moves towards it, without gradients.

    Args:
        buffers: `ema` averages floating buffers (batch norm statistics) like parameters and copies counters; `keep`
            leaves the copy its own, from its own forward passes in train mode.

    >>> online = nn.Linear(1, 1)
    >>> slow = MomentumCopy(online, "keep")
    >>> before = online.weight.detach().clone()
    >>> _ = online.weight.data.add_(1.0)
    >>> slow.update(online, 0.9)
    >>> slow.module.weight.allclose(before + 0.1)
    True
    """

    def __init__(self, online: nn.Module, buffers: Literal["ema", "keep"]) -> None:
        super().__init__()
        self.module = copy.deepcopy(online).requires_grad_(False)
        self.buffers_by = buffers

    @torch.no_grad()
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @torch.no_grad()
    def update(self, online: nn.Module, momentum: float) -> None:
        """copy ← momentum · copy + (1 − momentum) · online."""
        # By order, not by name: DDP and torch.compile put prefixes before the names of the online module.
        averaged: Pairs = list(zip(self.module.parameters(), online.parameters(), strict=True))
        copied: Pairs = []
        if self.buffers_by == "ema":
            for pair in zip(self.module.buffers(), online.buffers(), strict=True):
                (averaged if pair[0].is_floating_point() else copied).append(pair)
        for own, others in _alike(averaged):
            torch._foreach_lerp_(own, others, 1 - momentum)
        for own, others in _alike(copied):
            torch._foreach_copy_(own, others)


def _alike(pairs: Pairs) -> Iterable[tuple[list[Tensor], list[Tensor]]]:
    """Group pairs by device and type, as fused kernels require."""
    groups: dict[tuple[torch.device, torch.dtype], Pairs] = defaultdict(list)
    for own, other in pairs:
        groups[own.device, own.dtype].append((own, other))
    for group in groups.values():
        yield [own for own, _ in group], [other for _, other in group]
