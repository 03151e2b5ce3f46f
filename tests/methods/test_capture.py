"""Every stage's step can be a CUDA graph, and as one, or compiled, it learns the same."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from stage_tester import Build, loss_and_gradient, stages_of
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from suture.methods.method import methods
from suture.methods.stage import Part
from suture.models.compile_blocks import compile_blocks
from suture.models.segmenter import set_dropout
from suture.training.loop import Callback, TrainingLoop

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")


LIGHT: dict[str, dict[str, Any]] = {"dmt": {"rates": [0.5, 1.0]}, "uamt": {"train": {"passes": 2}}}
METHODS = [(name, LIGHT.get(name, {})) for name in sorted(methods())]
METHODS += [("pgvcl", {"contrast": {"keys": {"mode": mode}}}) for mode in ("shared", "bank")]
METHODS += [("stitch", {"train": {"propagate": 0}})]


class FromNumbers(TorchFunctionMode):
    """Refuses tensors made of numbers: they would be copied to the device, which a recording must not do."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert function not in (torch.tensor, torch.as_tensor, torch.from_numpy, torch.Tensor.new_tensor), function
        return function(*args, **kwargs or {})


@pytest.mark.parametrize(("name", "settings"), METHODS)
def test_no_step_waits_for_values(name: str, settings: dict[str, Any], tiny_context: Build) -> None:
    context = tiny_context()
    for stage in stages_of(name, settings, context):
        stage.begin(context)
        batch = stage.render(stage.draw(Part(0, range(4), range(4))))
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:  # refuses whatever needs a tensor's values
            fake = tree_map_only(torch.Tensor, mode.from_tensor, batch)
            with FromNumbers():
                loss = stage.step(fake)[0]
        assert loss.shape == ()


@pytest.mark.parametrize("name", ["pgvcl", "stitch", "uamt"])
@pytest.mark.parametrize(
    ("device", "backend", "tolerance"),
    [("cpu", "aot_eager", 1e-5), pytest.param("cuda", "inductor", 1e-2, marks=needs_cuda)],
)
def test_a_compiled_step_computes_the_same(
    device: str,
    backend: str,
    tolerance: float,
    name: str,
    tiny_context: Build,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Up to rounding: the loss, and the gradient as a whole, by a share of its length.

    Element by element would not do: rounding takes a unit whose input is nearly 0 to the other side of its ReLU.
    """
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    context = replace(tiny_context(), device=torch.device(device))
    *_, stage = (stage for stage in stages_of(name, {}, context) if stage.name in ("contrast", "train"))
    stage.begin(context)
    set_dropout(stage, active=False)  # inductor's draws other random numbers
    stage.to(device)
    drawn = stage.draw(Part(0, range(4), range(4)))
    batch = stage.render(tree_map_only(torch.Tensor, lambda one: one.to(device), drawn))
    state = deepcopy(stage.state_dict())
    plain_loss, plain_gradient = loss_and_gradient(stage, batch, state)
    compile_blocks(stage, backend=backend)
    loss, gradient = loss_and_gradient(stage, batch, state)
    assert loss == pytest.approx(plain_loss, rel=tolerance / 10)
    assert (gradient - plain_gradient).norm() <= tolerance * plain_gradient.norm()


@needs_cuda
@pytest.mark.parametrize(
    ("precision", "compiled", "tolerance"),
    [(None, False, 2e-2), (None, True, 2e-2), (torch.bfloat16, False, 2e-2), (torch.bfloat16, True, 5e-2)],
)
@pytest.mark.parametrize(("name", "settings"), METHODS)
def test_a_recorded_step_learns_the_same(
    name: str,
    settings: dict[str, Any],
    precision: torch.dtype | None,
    compiled: bool,
    tolerance: float,
    tiny_context: Build,
) -> None:
    """Losses, and the running averages of batch norms: a loss, computed in train mode, does not show these.

    Against the same precision, neither compiled nor recorded. The last is how a run trains on a GPU.
    """

    def learnt(capture: bool, compiled: bool) -> tuple[list[float], list[torch.Tensor]]:
        context = replace(
            tiny_context(), device=torch.device("cuda"), autocast=precision, capture=capture, compile=compiled
        )
        start = deepcopy(context.segmenter.state_dict())
        seen, averages = Losses(), []
        for stage in stages_of(name, settings, context):
            stage.settings = stage.settings.model_copy(update={"steps": 5, "epochs": None, "batch": 4})
            context.segmenter.cpu().load_state_dict(start)
            stage.begin(context)
            TrainingLoop(stage, [seen, WithoutDropout()]).run()
            assert (stage.captured is not None) == capture
            assert not capture or stage.replayed
            stage.end()
            found = [b.detach().flatten() for n, b in stage.outcome().named_buffers() if "running" in n]
            averages.append(torch.cat(found).cpu())
        return seen.losses, averages

    losses, averages = learnt(capture=False, compiled=False)
    found, after = learnt(capture=True, compiled=compiled)
    assert found == pytest.approx(losses, rel=tolerance)
    for one, other in zip(averages, after, strict=True):
        assert (one - other).norm() <= tolerance * one.norm()


class WithoutDropout(Callback):
    """Switches it off in train mode: what is compiled draws other random numbers."""

    def on_step_start(self, loop: TrainingLoop) -> None:
        set_dropout(loop.stage, active=False)


class Losses(Callback):
    """Notes the loss of every step."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_step_end(self, loop: TrainingLoop) -> None:
        self.losses.append(float(loop.stage.last_loss))
