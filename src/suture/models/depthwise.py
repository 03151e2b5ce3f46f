"""Depthwise convolutions that learn quickly on ARM processors.

There, torch's backward pass of a depthwise convolution is a plain loop, tens of times slower than its forward pass. But
the gradient of the input is a forward pass with the mirrored kernel, and that of each tap of the kernel is a sum of
products.
"""

import platform
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from suture.models.atrous import Atrous, keeps_size, reaching

SLOW = platform.machine() in ("aarch64", "arm64")
"""Whether this machine's processor is one of those."""


def use_fast_depthwise(network: nn.Module) -> None:
    """Give the depthwise convolutions of a network this backward pass; weights and values stay what they are."""
    for part in network.modules():
        if type(part) is nn.Conv2d and _is_depthwise(part):
            part.__class__ = FastDepthwise


class FastDepthwise(Atrous):
    """A depthwise convolution of stride 1 that keeps the size."""

    def forward(self, features: Tensor) -> Tensor:
        if features.device.type != "cpu" or not torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            return super().forward(features)
        found: Tensor = _Depthwise.apply(features, *reaching(self, features), self.dilation)
        return found if self.bias is None else found + self.bias[:, None, None]


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, padding: Any, dilation: Any) -> Tensor:
        ctx.save_for_backward(features, weight)
        ctx.padding, ctx.dilation = padding, dilation
        return F.conv2d(features, weight, None, 1, padding, dilation, len(weight))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, weight = ctx.saved_tensors
        (top, left), (down, right) = ctx.padding, ctx.dilation
        of_features = of_weight = None
        if ctx.needs_input_grad[0]:
            # The padding that keeps the size is the same from both sides.
            mirrored = weight.flip(2, 3)
            of_features = F.conv2d(gradient, mirrored, None, 1, ctx.padding, ctx.dilation, len(weight))
        if ctx.needs_input_grad[1]:
            height, width = gradient.shape[2:]
            padded = F.pad(features, (left, left, top, top))
            taps = [
                (padded[:, :, y : y + height, x : x + width] * gradient).sum((0, 2, 3))
                for y in range(0, down * weight.shape[2], down)
                for x in range(0, right * weight.shape[3], right)
            ]
            of_weight = torch.stack(taps, 1).view_as(weight)
        return of_features, of_weight, None, None


def _is_depthwise(part: nn.Conv2d) -> bool:
    return part.groups == part.in_channels == part.out_channels > 1 and keeps_size(part)
