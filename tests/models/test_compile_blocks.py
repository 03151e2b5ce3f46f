"""Networks are found to be made of blocks, and compute the same when those are compiled."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn

from suture.models.compile_blocks import blocks, compile_blocks, forget_compiled
from suture.models.segmenter import build_segmenter, set_dropout


@pytest.mark.parametrize(
    ("architecture", "encoder", "kinds"),
    [
        ("deeplabv3", "resnet50", {"Bottleneck": 16, "ASPP": 1, "Sequential": 1}),
        ("unet", "resnet18", {"BasicBlock": 8, "UnetDecoderBlock": 5, "Sequential": 1}),
        ("segformer", "mit_b0", {"Block": 8, "MLP": 4, "Conv2dReLU": 1, "Sequential": 1}),
    ],
)
def test_blocks_are_what_stands_in_rows(architecture: str, encoder: str, kinds: dict[str, int]) -> None:
    found = [type(block).__name__ for block in blocks(build_segmenter(architecture, encoder, 3))]
    assert {name: found.count(name) for name in found} == kinds


@pytest.mark.parametrize(
    "network",
    [
        nn.ModuleDict({"layers": nn.ModuleList([nn.Conv2d(3, 3, 1), nn.ReLU()])}),  # cannot be called
        nn.ModuleDict({"layer": nn.Conv2d(3, 3, 1)}),
    ],
)
def test_single_layers_are_no_blocks(network: nn.Module) -> None:
    assert not list(blocks(network))


def test_compiled_blocks_compute_and_learn_the_same() -> None:
    torch.manual_seed(0)
    plain = build_segmenter("deeplabv3", "tu-test_resnet", 3)
    set_dropout(plain, active=False)
    compiled = deepcopy(plain)
    compile_blocks(compiled, backend="aot_eager")
    images = torch.rand(2, 3, 32, 32)
    for network in (plain, compiled):
        network(images).square().mean().backward()
    for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    for one, other in zip(plain.buffers(), compiled.buffers(), strict=True):
        torch.testing.assert_close(one, other)

    forget_compiled(compiled)
    assert all(block._compiled_call_impl is None for block in blocks(compiled))


def test_what_cannot_be_compiled_is_computed_as_written_where_nobody_asked_for_it() -> None:
    def broken(graph: Any, inputs: Any) -> Any:
        raise OSError("no compiler")

    network = nn.ModuleDict({"head": nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU())})
    images = torch.rand(1, 3, 4, 4)
    expected = network["head"](images)
    torch._dynamo.register_backend(broken, name="broken")
    compile_blocks(network, strict=False, backend="broken")
    with pytest.warns(UserWarning, match=r"cannot be compiled on this machine \(no compiler\)"):
        torch.testing.assert_close(network["head"](images), expected)
    torch._dynamo.reset()
    compile_blocks(network, backend="broken")
    with pytest.raises(Exception, match="no compiler"):
        network["head"](images)
