"""Atrous convolutions that leave out taps against torch's own."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layers import gradients
from torch import nn

from suture.models.atrous import Atrous, reaching, use_atrous
from suture.models.segmenter import build_segmenter


@given(
    kernel=st.tuples(st.sampled_from([1, 3, 5]), st.sampled_from([1, 3, 5])),
    dilation=st.tuples(st.integers(2, 6), st.integers(1, 6)),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    bias=st.booleans(),
    groups=st.sampled_from([1, 2]),
)
def test_values_and_gradients_are_torchs_own(
    kernel: tuple[int, int], dilation: tuple[int, int], size: tuple[int, int], bias: bool, groups: int
) -> None:
    padding = tuple(d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True))
    torch.manual_seed(0)
    plain = nn.Conv2d(4, 6, kernel, 1, padding, dilation, groups, bias)
    ours = copy.deepcopy(plain)
    use_atrous(ours)
    assert type(ours) is Atrous
    features = torch.randn(2, 4, *size)
    for found, expected in zip(gradients(ours, features), gradients(plain, features), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("size", "taps", "padding"),
    [((37, 37), (3, 3), (36, 36)), ((36, 37), (1, 3), (0, 36)), ((32, 32), (1, 1), (0, 0))],
)
def test_taps_outside_are_left_out(size: tuple[int, int], taps: tuple[int, int], padding: tuple[int, int]) -> None:
    weight, room = reaching(nn.Conv2d(1, 1, 3, padding=36, dilation=36), torch.zeros(1, 1, *size))
    assert weight.shape[2:] == taps
    assert room == padding


@pytest.mark.parametrize(
    "other",
    [
        nn.Conv2d(4, 4, 3, padding=1),
        nn.Conv2d(4, 4, 3, padding=1, dilation=2),
        nn.Conv2d(4, 4, 3, stride=2, padding=2, dilation=2),
        nn.Conv2d(4, 4, 2, padding=1, dilation=2),
        nn.Conv2d(4, 4, 3, padding=2, dilation=2, padding_mode="reflect"),
    ],
)
def test_other_convolutions_are_left_alone(other: nn.Conv2d) -> None:
    use_atrous(other)
    assert type(other) is nn.Conv2d


@pytest.mark.parametrize("architecture", ["deeplabv3", "deeplabv3plus"])
def test_every_deeplab_has_them(architecture: str) -> None:
    segmenter = build_segmenter(architecture, "tu-test_resnet", 3, 16)
    wide = [part for part in segmenter.modules() if isinstance(part, nn.Conv2d) and max(part.dilation) >= 12]
    assert len(wide) == 3
    assert all(isinstance(part, Atrous) for part in wide)
