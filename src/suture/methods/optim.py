"""LARS, learning-rate schedules and parameter groups.

A schedule is a pure function of the step, so a resumed run needs no scheduler state. Those of the learning rate return
a factor of the base rate.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

from suture.models.compile_blocks import blocks


class Lars(torch.optim.Optimizer):
    """SGD with momentum whose step is proportional to the norm of each layer's weights (You et al., 2017).

    As in PixPro: with g the gradient plus weight decay, g is multiplied by trust·|w| / |g| before momentum. Parameters
    of one dimension (biases, batch norm) are neither decayed nor scaled; layers with |w| = 0 or |g| = 0 are not scaled.

    >>> layer = nn.Linear(3, 2)
    >>> optimizer = Lars(layer.parameters(), lr=1.0, weight_decay=1e-5)
    >>> layer(torch.ones(1, 3)).sum().backward()
    >>> optimizer.step()
    """

    def __init__(
        self, params: ParamsT, lr: float, momentum: float = 0.9, weight_decay: float = 0.0, trust: float = 1e-3
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                self._update(params, group["lr"], group["momentum"], group["weight_decay"], group["trust"])
        return loss

    def _update(self, params: list[Tensor], lr: float, momentum: float, weight_decay: float, trust: float) -> None:
        params = sorted(params, key=lambda p: p.ndim <= 1)  # layers first
        grads = [p.grad for p in params if p.grad is not None]
        layers = [p for p in params if p.ndim > 1]
        if layers:
            grads[: len(layers)] = _adapt(layers, grads[: len(layers)], weight_decay, trust)

        for p in params:
            if "momentum_buffer" not in self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        velocities = [self.state[p]["momentum_buffer"] for p in params]
        torch._foreach_mul_(velocities, momentum)
        torch._foreach_add_(velocities, grads)
        torch._foreach_add_(params, velocities, alpha=-lr)


def _adapt(layers: list[Tensor], grads: list[Tensor], weight_decay: float, trust: float) -> list[Tensor]:
    """Gradients with weight decay, scaled by their layers' trust ratios, without waiting for the device."""
    decayed = torch._foreach_add(grads, layers, alpha=weight_decay)
    norms = torch.stack(torch._foreach_norm(layers))
    grad_norms = torch.stack(torch._foreach_norm(decayed))
    ratios = torch.where((norms > 0) & (grad_norms > 0), trust * norms / (grad_norms + 1e-8), 1.0)
    return list(torch._foreach_mul(decayed, list(ratios.unbind())))


def poly(step: int, total: int, power: float) -> float:
    """Factor that falls from 1 at step 0 to 0 at step `total`.

    >>> [round(poly(step, 100, power=0.9), 3) for step in (0, 50, 100)]
    [1.0, 0.536, 0.0]
    """
    return (1 - min(step, total) / total) ** power


def cosine_warmup(step: int, total: int, warmup: int, start_factor: float = 0.01, end_factor: float = 1e-6) -> float:
    """Factor that rises linearly from `start_factor` to 1 in `warmup` steps, then falls by a cosine.

    >>> [round(cosine_warmup(step, total=110, warmup=10), 3) for step in (0, 5, 10, 60, 110)]
    [0.01, 0.505, 1.0, 0.5, 0.0]
    """
    if step < warmup:
        return start_factor + (1 - start_factor) * step / warmup
    return end_factor + (1 - end_factor) * _half_cosine(step - warmup, total - warmup)


def momentum_schedule(step: int, total: int, start: float = 0.99, end: float = 1.0) -> float:
    """Momentum of an EMA copy, from `start` to `end` by a cosine.

    >>> [round(momentum_schedule(step, 100), 4) for step in (0, 50, 100)]
    [0.99, 0.995, 1.0]
    """
    return end - (end - start) * _half_cosine(step, total)


def _half_cosine(step: int, total: int) -> float:
    """1 at step 0, 0 from step `total` on."""
    return (1 + math.cos(math.pi * min(step / total, 1.0))) / 2 if total > 0 else 0.0


def param_groups(
    segmenter: nn.Module, lr: float, decoder_factor: float = 1.0, head_factor: float = 1.0, layer_decay: float = 1.0
) -> list[dict[str, Any]]:
    """Optimizer groups of a segmenter's encoder, decoder and head, without frozen parameters and empty groups.

    Args:
        lr: Learning rate of the encoder; with `layer_decay`, of its last block.
        decoder_factor: Learning rate of the decoder, as a multiple of `lr`.
        head_factor: Learning rate of the head, as a multiple of `lr`.
        layer_decay: Learning rate of an encoder's block, as a multiple of that of the next block. There is a group for
            each block then, the last block first.
    """
    encoder, decoder, head = (segmenter.get_submodule(name) for name in ("encoder", "decoder", "head"))
    layers = _layers(encoder) if layer_decay < 1 else [[*encoder.parameters()]]
    groups = [("encoder", layer, lr * layer_decay**depth) for depth, layer in enumerate(reversed(layers))]
    groups += [
        ("decoder", [*decoder.parameters()], lr * decoder_factor),
        ("head", [*head.parameters()], lr * head_factor),
    ]
    return [
        {"name": name, "params": learnt, "lr": rate}
        for name, params, rate in groups
        if (learnt := [p for p in params if p.requires_grad])
    ]


def _layers(encoder: nn.Module) -> list[list[nn.Parameter]]:
    """Parameters of the stem and of each block; those between blocks belong to the block before."""
    number_of = {p: number for number, block in enumerate(blocks(encoder), 1) for p in block.parameters()}
    layers: list[list[nn.Parameter]] = [[] for _ in range(max(number_of.values(), default=0) + 1)]
    number = 0
    for parameter in encoder.parameters():
        number = number_of.get(parameter, number)
        layers[number].append(parameter)
    return layers
