"""Faster convolutions with the same weights and values: atrous ones, and depthwise ones on ARM processors."""

import platform
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SLOW_DEPTHWISE = platform.machine() in ("aarch64", "arm64")
"""On ARM, torch's backward pass of a depthwise convolution is tens of times slower than its forward pass."""


def replace_convolutions(network: nn.Module, depthwise: bool = SLOW_DEPTHWISE) -> None:
    """Replace convolutions by the faster versions below where these fit; weights and values stay the same."""
    for part in network.modules():
        if type(part) is not nn.Conv2d or not _keeps_size(part):
            continue
        if depthwise and part.groups == part.in_channels == part.out_channels > 1:
            part.__class__ = DepthwiseConv
        elif max(part.dilation) > 1:
            part.__class__ = AtrousConv


class AtrousConv(nn.Conv2d):
    """Convolution that keeps the size and leaves out kernel taps that lie outside of the features everywhere.

    DeepLab's taps reach 12, 24 and 36 cells far; at 256 pixels and output stride 8 the grid has only 32 cells a side.
    """

    def forward(self, features: Tensor) -> Tensor:
        weight, padding = self.inner_taps(features)
        return F.conv2d(features, weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def inner_taps(self, features: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """Taps that reach the features from somewhere, and the padding that they need."""
        weight, padding = self.weight, [int(pad) for pad in self.padding]
        for axis, (side, taps, dilation) in enumerate(
            zip(features.shape[2:], self.kernel_size, self.dilation, strict=True)
        ):
            if isinstance(side, torch.SymInt):  # exported for any size
                continue
            reach = min(taps // 2, (side - 1) // dilation)
            if reach < taps // 2:
                weight = weight.narrow(2 + axis, taps // 2 - reach, 2 * reach + 1)
                padding[axis] = reach * dilation
        return weight, tuple(padding)


class DepthwiseConv(AtrousConv):
    """Depthwise convolution of stride 1 whose backward pass on a CPU is made of fast operations.

    The gradient of the input is a forward pass with the mirrored kernel; that of a tap is a sum of products.
    """

    def forward(self, features: Tensor) -> Tensor:
        if features.device.type != "cpu" or not torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            return super().forward(features)
        result: Tensor = _Depthwise.apply(features, *self.inner_taps(features), self.dilation)
        return result if self.bias is None else result + self.bias[:, None, None]


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
        features_gradient = weight_gradient = None
        if ctx.needs_input_grad[0]:
            mirrored = weight.flip(2, 3)
            features_gradient = F.conv2d(gradient, mirrored, None, 1, ctx.padding, ctx.dilation, len(weight))
        if ctx.needs_input_grad[1]:
            height, width = gradient.shape[2:]
            padded = F.pad(features, (left, left, top, top))
            taps = [
                (padded[:, :, y : y + height, x : x + width] * gradient).sum((0, 2, 3))
                for y in range(0, down * weight.shape[2], down)
                for x in range(0, right * weight.shape[3], right)
            ]
            weight_gradient = torch.stack(taps, 1).view_as(weight)
        return features_gradient, weight_gradient, None, None


def _keeps_size(part: nn.Conv2d) -> bool:
    """Check for stride 1 and zero padding that keeps the size of the features."""
    even = all(
        isinstance(pad, int) and 2 * pad == dilation * (side - 1) and side % 2
        for pad, dilation, side in zip(part.padding, part.dilation, part.kernel_size, strict=False)
    )
    return even and part.stride == (1, 1) and part.padding_mode == "zeros"
