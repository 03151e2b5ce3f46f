"""Faster convolutions against torch's own."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from suture.models.convolutions import AtrousConv, DepthwiseConv, replace_convolutions
from suture.models.segmenter import build_segmenter


def gradients(layer: nn.Module, features: Tensor) -> list[Tensor]:
    """The output, and the gradients of the input and the parameters."""
    features = features.clone().requires_grad_()
    output = layer(features)
    weights = torch.linspace(-1, 1, output.numel()).view(output.shape)
    return [output, *torch.autograd.grad((output * weights).sum(), [features, *layer.parameters()])]


@given(
    kernel=st.tuples(st.sampled_from([1, 3, 5]), st.sampled_from([1, 3, 5])),
    dilation=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    groups=st.sampled_from([1, 2, 4]),
    bias=st.booleans(),
    channels_last=st.booleans(),
)
def test_values_and_gradients_are_torchs_own(
    kernel: tuple[int, int],
    dilation: tuple[int, int],
    size: tuple[int, int],
    groups: int,
    bias: bool,
    channels_last: bool,
) -> None:
    padding = tuple(d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True))
    torch.manual_seed(0)
    plain = nn.Conv2d(4, 4, kernel, 1, padding, dilation, groups, bias)
    features = torch.randn(2, 4, *size)
    if channels_last:
        plain, features = plain.to(memory_format=torch.channels_last), features.to(memory_format=torch.channels_last)
    ours = copy.deepcopy(plain)
    replace_convolutions(ours, depthwise=True)
    assert type(ours) is (DepthwiseConv if groups == 4 else AtrousConv if max(dilation) > 1 else nn.Conv2d)
    for result, expected in zip(gradients(ours, features), gradients(plain, features), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("size", "taps", "padding"),
    [((37, 37), (3, 3), (36, 36)), ((36, 37), (1, 3), (0, 36)), ((32, 32), (1, 1), (0, 0))],
)
def test_taps_outside_are_left_out(size: tuple[int, int], taps: tuple[int, int], padding: tuple[int, int]) -> None:
    layer = AtrousConv(1, 1, 3, padding=36, dilation=36)
    weight, inner_padding = layer.inner_taps(torch.zeros(1, 1, *size))
    assert weight.shape[2:] == taps
    assert inner_padding == padding


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": 3, "padding": 1, "dilation": 2},
        {"kernel_size": 3, "padding": 2, "dilation": 2, "stride": 2},
        {"kernel_size": 2, "padding": 1, "dilation": 2},
        {"kernel_size": 3, "padding": 2, "dilation": 2, "padding_mode": "reflect"},
        {"kernel_size": 3, "padding": 1, "groups": 2},
        {"kernel_size": 3, "padding": 1, "groups": 4, "stride": 2},
        {"kernel_size": 3, "groups": 4},
        {"kernel_size": 3, "padding": "same", "groups": 4},
    ],
)
def test_other_convolutions_are_left_alone(options: dict) -> None:
    layer = nn.Conv2d(4, 4, **options)
    replace_convolutions(layer, depthwise=True)
    assert type(layer) is nn.Conv2d


def test_frozen_weights_get_no_gradient() -> None:
    layer = nn.Conv2d(3, 3, 3, padding=1, groups=3).requires_grad_(False)
    replace_convolutions(layer, depthwise=True)
    features = torch.randn(1, 3, 4, 4, requires_grad=True)
    layer(features).sum().backward()
    assert features.grad is not None
    assert layer.weight.grad is None


@pytest.mark.parametrize("architecture", ["deeplabv3", "deeplabv3plus"])
def test_every_deeplab_has_them(architecture: str) -> None:
    segmenter = build_segmenter(architecture, "tu-test_resnet", 3, 16)
    wide = [part for part in segmenter.modules() if isinstance(part, nn.Conv2d) and max(part.dilation) >= 12]
    assert len(wide) == 3
    assert all(isinstance(part, AtrousConv) for part in wide)
