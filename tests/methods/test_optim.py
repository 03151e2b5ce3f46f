import copy
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from suture.methods.optim import Lars, cosine_warmup, momentum_schedule, param_groups, poly
from suture.models.segmenter import build_segmenter


def slow_lars(
    weights: list[Tensor], grads: list[list[Tensor]], lr: float, momentum: float, decay: float, trust: float
) -> list[Tensor]:
    """LARS with loops and plain arithmetic, for gradients given step by step."""
    weights = [w.clone() for w in weights]
    velocities = [torch.zeros_like(w) for w in weights]
    for step in grads:
        for i, grad in enumerate(step):
            if weights[i].ndim > 1:
                grad = grad + decay * weights[i]
                norm, grad_norm = weights[i].pow(2).sum().sqrt().item(), grad.pow(2).sum().sqrt().item()
                if norm > 0 and grad_norm > 0:
                    grad = grad * trust * norm / (grad_norm + 1e-8)
            velocities[i] = momentum * velocities[i] + grad
            weights[i] = weights[i] - lr * velocities[i]
    return weights


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**31),
    lr=st.floats(0.01, 2),
    momentum=st.floats(0, 0.99),
    decay=st.sampled_from([0.0, 1e-5, 0.1]),
    trust=st.floats(1e-4, 0.1),
)
def test_lars_equals_the_slow_version(seed: int, lr: float, momentum: float, decay: float, trust: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(4, 3), (4,), (2, 3, 3, 3), (2,), (3, 2)]
    weights = [torch.randn(shape, generator=generator) for shape in shapes]
    weights[-1].zero_()  # no norm, so no scaling in the first step
    grads = [[torch.randn(shape, generator=generator) for shape in shapes] for _ in range(4)]
    grads[2][0].zero_()
    params = [nn.Parameter(w.clone()) for w in weights]
    optimizer = Lars(params, lr=lr, momentum=momentum, weight_decay=decay, trust=trust)
    for step in grads:
        for p, grad in zip(params, step, strict=True):
            p.grad = grad.clone()
        optimizer.step()
        assert all(torch.equal(p.grad, grad) for p, grad in zip(params, step, strict=True))  # type: ignore[arg-type]
    for p, expected in zip(params, slow_lars(weights, grads, lr, momentum, decay, trust), strict=True):
        torch.testing.assert_close(p.detach(), expected, rtol=1e-4, atol=1e-6)


def test_lars_goes_on_from_its_state() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    inputs = torch.randn(6, 4)

    def train(model: nn.Module, optimizer: Lars, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()

    optimizer = Lars(model.parameters(), lr=1.0, weight_decay=1e-5)
    train(model, optimizer, 3)
    resumed = copy.deepcopy(model)
    again = Lars(resumed.parameters(), lr=0.1)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(model, optimizer, 3)
    train(resumed, again, 3)
    for a, b in zip(model.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


def test_lars_leaves_parameters_without_gradient_alone() -> None:
    used, unused = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
    optimizer = Lars([used, unused], lr=1.0, weight_decay=0.1)
    loss = optimizer.step(lambda: used.sum().backward() or 3.0)
    assert loss == 3.0
    assert torch.equal(unused, torch.ones(2, 2))
    assert not torch.equal(used, torch.ones(2, 2))


def test_poly() -> None:
    assert [poly(step, 10, power=0.9) for step in (0, 4, 10, 11)] == pytest.approx([1.0, 0.6**0.9, 0.0, 0.0])
    assert poly(5, 10, power=2) == pytest.approx(0.25)


@given(total=st.integers(1, 1000), share=st.floats(0, 0.9))
def test_cosine_warmup(total: int, share: float) -> None:
    warmup = int(share * total)
    factors = [cosine_warmup(step, total, warmup) for step in range(total + 1)]
    assert factors[0] == pytest.approx(0.01 if warmup else 1.0)
    assert factors[warmup] == pytest.approx(1.0)
    assert factors[-1] == pytest.approx(1e-6)
    assert all(a < b for a, b in itertools.pairwise(factors[: warmup + 1]))
    assert all(a > b for a, b in itertools.pairwise(factors[warmup:]))


def test_cosine_warmup_by_hand() -> None:
    assert cosine_warmup(5, 30, 10) == pytest.approx(0.01 + 0.99 * 0.5)
    assert cosine_warmup(15, 30, 10, end_factor=0.1) == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2)
    assert cosine_warmup(3, 3, 3) == pytest.approx(1e-6)  # all warm-up


def test_momentum_schedule() -> None:
    values = [momentum_schedule(step, 100) for step in range(101)]
    assert (values[0], values[50], values[100]) == pytest.approx((0.99, 0.995, 1.0))
    assert values == sorted(values)
    assert momentum_schedule(7, 10, start=0.5, end=0.9) == pytest.approx(0.9 - 0.4 * (1 + math.cos(0.7 * math.pi)) / 2)


def test_encoder_decoder_and_head_learn_at_their_own_rates() -> None:
    parts = {name: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)) for name in ("encoder", "decoder", "head")}
    segmenter = nn.ModuleDict(parts)
    parts["encoder"][0].requires_grad_(False)
    groups = param_groups(segmenter, lr=0.1, decoder_factor=2, head_factor=5)
    assert {group["name"]: group["lr"] for group in groups} == pytest.approx(
        {"encoder": 0.1, "decoder": 0.2, "head": 0.5}
    )
    assert [len(group["params"]) for group in groups] == [2, 4, 4]
    segmenter.decoder.requires_grad_(False)
    assert [group["name"] for group in param_groups(segmenter, 0.1)] == ["encoder", "head"]


def test_earlier_blocks_of_the_encoder_learn_more_slowly() -> None:
    segmenter = build_segmenter("dpt", "tu-test_vit")
    groups = param_groups(segmenter, lr=1.0, decoder_factor=2, head_factor=5, layer_decay=0.5)
    rate_of = {p: group["lr"] for group in groups for p in group["params"]}
    assert rate_of.keys() == set(segmenter.parameters())
    vit, blocks = segmenter.encoder.model, len(segmenter.encoder.model.blocks)
    for number, block in enumerate(vit.blocks, 1):
        assert {rate_of[p] for p in block.parameters()} == {0.5 ** (blocks - number)}
    assert rate_of[vit.pos_embed] == rate_of[vit.patch_embed.proj.weight] == 0.5**blocks
    assert rate_of[vit.norm.weight] == 1
    assert [(group["name"], group["lr"]) for group in groups[-2:]] == [("decoder", 2), ("head", 5)]
    assert groups[0]["lr"] == 1
