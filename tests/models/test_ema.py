import copy
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from suture.models.ema import MomentumCopy

Buffers = Literal["ema", "keep"]


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))


def moved(online: nn.Module) -> nn.Module:
    """As after a step of training: other weights, other statistics."""
    with torch.no_grad():
        for parameter in online.parameters():
            parameter.add_(torch.randn_like(parameter))
        online.train()(torch.randn(2, 3, 4, 4))
    return online


def obvious(slow: nn.Module, online: nn.Module, momentum: float, buffers: Buffers) -> None:
    """Tensor by tensor, by name."""
    state, target = slow.state_dict(), online.state_dict()
    parameters = dict(slow.named_parameters())
    for name, own in state.items():
        if name in parameters or (buffers == "ema" and own.is_floating_point()):
            state[name] = momentum * own + (1 - momentum) * target[name]
        elif buffers != "keep":
            state[name] = target[name]
    slow.load_state_dict(state)


@given(momentum=st.floats(0, 1), buffers=st.sampled_from(["ema", "keep"]), steps=st.integers(1, 3))
def test_as_the_obvious_loop(momentum: float, buffers: Buffers, steps: int) -> None:
    online = network()
    slow, expected = MomentumCopy(online, buffers), copy.deepcopy(online)
    for _ in range(steps):
        moved(online)
        slow.update(online, momentum)
        obvious(expected, online, momentum, buffers)
    torch.testing.assert_close(slow.module.state_dict(), expected.state_dict())


def test_ends_of_the_range_are_exact() -> None:
    online = network()
    slow = MomentumCopy(online, "ema")
    before = copy.deepcopy(slow.module)
    moved(online)
    slow.update(online, 1.0)
    assert all(torch.equal(a, b) for a, b in zip(slow.parameters(), before.parameters(), strict=True))
    slow.update(online, 0.0)
    assert all(torch.equal(a, b) for a, b in zip(slow.parameters(), online.parameters(), strict=True))


def test_outside_autograd_and_inside_the_state() -> None:
    online = network()
    slow = MomentumCopy(online, "ema")
    assert not any(parameter.requires_grad for parameter in slow.parameters())
    assert all(parameter.requires_grad for parameter in online.parameters())
    images = torch.rand(1, 3, 2, 2, requires_grad=True)
    assert not slow(images).requires_grad
    slow.update(online, 0.5)
    assert all(parameter.grad_fn is None for parameter in slow.parameters())
    other = MomentumCopy(network(seed=1), "ema")
    other.load_state_dict(slow.state_dict())
    assert set(slow.state_dict()) == {f"module.{name}" for name in online.state_dict()}
    assert torch.equal(other.get_parameter("module.0.weight"), slow.get_parameter("module.0.weight"))


def test_the_mode_is_the_callers() -> None:
    online = network()
    slow = MomentumCopy(online, "keep").train()
    before = slow.get_buffer("module.1.running_mean").clone()
    slow(torch.rand(2, 3, 4, 4))
    own = slow.get_buffer("module.1.running_mean").clone()
    assert not torch.equal(own, before)
    slow.update(moved(online), 0.5)
    assert torch.equal(slow.get_buffer("module.1.running_mean"), own)
    assert not slow.eval().module.training


def test_wrapped_online_modules_have_other_names_only() -> None:
    online = network()
    slow = MomentumCopy(online, "ema")
    moved(online)
    slow.update(nn.ModuleDict({"module": online}), 0.0)
    assert torch.equal(slow.get_parameter("module.0.weight"), online.get_parameter("0.weight"))


def test_lists_are_of_one_type_and_device(monkeypatch: pytest.MonkeyPatch) -> None:
    online = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2, dtype=torch.float64), nn.BatchNorm1d(2)])
    slow = MomentumCopy(online, "ema")
    calls: list[tuple[str, list[Any]]] = []
    for name in ("_foreach_lerp_", "_foreach_copy_"):
        real = getattr(torch, name)

        def spy(own: Any, *args: Any, name: str = name, real: Any = real) -> Any:
            calls.append((name, own))
            return real(own, *args)

        monkeypatch.setattr(torch, name, spy)
    slow.update(online, 0.9)
    assert [name for name, _ in calls] == ["_foreach_lerp_"] * 2 + ["_foreach_copy_"]
    for _, own in calls:
        assert len({(tensor.dtype, tensor.device) for tensor in own}) == 1
    assert sum(len(own) for _, own in calls) == len(list(online.parameters())) + len(list(online.buffers()))
