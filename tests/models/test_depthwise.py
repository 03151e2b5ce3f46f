"""The fast depthwise convolution against torch's own."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layers import gradients
from torch import nn

from suture.models.depthwise import FastDepthwise, use_fast_depthwise


@given(
    kernel=st.tuples(st.sampled_from([1, 3, 5]), st.sampled_from([1, 3, 5])),
    dilation=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    shape=st.tuples(st.integers(1, 3), st.integers(2, 5), st.integers(1, 9), st.integers(1, 9)),
    bias=st.booleans(),
    channels_last=st.booleans(),
)
def test_values_and_gradients_are_torchs_own(
    kernel: tuple[int, int],
    dilation: tuple[int, int],
    shape: tuple[int, int, int, int],
    bias: bool,
    channels_last: bool,
) -> None:
    padding = tuple(d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True))
    torch.manual_seed(0)
    plain = nn.Conv2d(shape[1], shape[1], kernel, 1, padding, dilation, shape[1], bias)
    features = torch.randn(shape)
    if channels_last:
        plain, features = plain.to(memory_format=torch.channels_last), features.to(memory_format=torch.channels_last)
    fast = copy.deepcopy(plain)
    use_fast_depthwise(fast)
    assert type(fast) is FastDepthwise
    for ours, theirs in zip(gradients(fast, features), gradients(plain, features), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "other",
    [
        nn.Conv2d(4, 4, 3, padding=1),
        nn.Conv2d(4, 4, 3, padding=1, groups=2),
        nn.Conv2d(4, 8, 3, padding=1, groups=4),
        nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=4),
        nn.Conv2d(4, 4, 3, groups=4),
        nn.Conv2d(4, 4, 3, padding="same", groups=4),
        nn.Conv2d(4, 4, 3, padding=1, groups=4, padding_mode="reflect"),
    ],
)
def test_other_convolutions_are_left_alone(other: nn.Conv2d) -> None:
    use_fast_depthwise(other)
    assert type(other) is nn.Conv2d


def test_resting_weights_get_no_gradient() -> None:
    layer = nn.Conv2d(3, 3, 3, padding=1, groups=3).requires_grad_(False)
    use_fast_depthwise(layer)
    features = torch.randn(1, 3, 4, 4, requires_grad=True)
    layer(features).sum().backward()
    assert features.grad is not None
    assert layer.weight.grad is None
