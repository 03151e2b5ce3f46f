"""What every stage must do that learns from more than labels; its test class says how to make the stage."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from suture.data.classes import IGNORE
from suture.methods import cutmix, pgvcl, semi, strong
from suture.methods import stage as base
from suture.methods.method import find_method
from suture.methods.pseudo_labels import PseudoLabels
from suture.methods.stage import Part, Stage, StageContext
from suture.models.inference import predict_probabilities
from suture.models.segmenter import Segmenter, set_dropout
from suture.training.loop import Callback, TrainingLoop

Build = Callable[..., StageContext]
"""The fixture `tiny_context`."""
QUICK = {"lr": 3e-3, "head_factor": 1}
EASY = {"crop": (0.9, 1.0), "color": "none"}


class SaveAt(Callback):
    """Saves the state before a step, as a run does."""

    def __init__(self, step: int, path: Path) -> None:
        self.step, self.path = step, path

    def on_step_start(self, loop: TrainingLoop) -> None:
        if loop.step == self.step:
            torch.save(loop.state_dict(), self.path)


def train_accuracy(segmenter: Segmenter, context: StageContext) -> float:
    """The share of right pixels on the labelled frames, whole, as inference sees them."""
    frames = torch.stack([torch.from_numpy(context.frames.image(n)) for n in context.frames.labelled])
    labels = torch.from_numpy(np.stack([context.frames.labels(n) for n in context.frames.labelled]))
    found = predict_probabilities(segmenter.eval(), frames, frames.shape[1:3]).argmax(1)
    return (found == labels)[labels != IGNORE].float().mean().item()


def stages_of(name: str, settings: dict[str, Any], context: StageContext) -> Iterator[Stage]:
    """A method's training stages, with pseudo labels where they need some."""
    for stage in find_method(name)(find_method(name).Settings(**settings)).stages():
        if isinstance(stage, PseudoLabels):
            stage.run(context)
            stage.load(context)
        else:
            yield stage


def loss_and_gradient(
    stage: Stage, batch: Any, state: dict[str, Any], precision: torch.dtype = torch.float32
) -> tuple[float, Tensor]:
    """The loss of a step on a rendered batch from a state of the stage, and its gradient, as one vector."""
    stage.load_state_dict(state)
    stage.zero_grad()
    torch.manual_seed(0)
    with torch.autocast(next(stage.parameters()).device.type, precision, enabled=precision != torch.float32):
        loss = stage.step(batch)[0]
    loss.backward()
    return loss.item(), torch.cat([p.grad.flatten() for p in stage.parameters() if p.grad is not None])


def gradients(stage: Stage, part: Part) -> list[Tensor]:
    """What a stage learns from a part of a step, without what depends on how a batch is divided."""
    set_dropout(stage, active=False)
    for module in stage.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    stage(stage.render(stage.draw(part)), 0).backward()
    return [p.grad for p in stage.parameters() if p.grad is not None]


def meet(patch: pytest.MonkeyPatch, world: int) -> None:
    """Let threads stand for processes: collectives wait for all of them."""
    barrier, values = threading.Barrier(world, timeout=60), [torch.empty(0)] * world

    def everyones(value: Tensor) -> list[Tensor]:
        barrier.wait()
        values[int(threading.current_thread().name)] = value
        barrier.wait()
        return list(values)

    for module in (base, semi, pgvcl):
        patch.setattr(module, "all_sum", lambda value: torch.stack(everyones(value)).sum(0))
    for module in (cutmix, strong, pgvcl):
        patch.setattr(module, "all_gather", lambda value: torch.cat(everyones(value)))


class StageTester:
    """Subclasses say `make`, which gives a stage with a batch of 4 that one process or two compute alike."""

    def make(self, **settings: Any) -> Stage:
        raise NotImplementedError

    def test_resumes_to_the_same_weights(self, tiny_context: Build, tmp_path: Path) -> None:
        path = tmp_path / "last.ckpt"
        whole, resumed = self.make(steps=4), self.make(steps=4)
        whole.begin(tiny_context())
        TrainingLoop(whole, [SaveAt(2, path)]).run()
        resumed.begin(tiny_context())
        loop = TrainingLoop(resumed)
        loop.load_state_dict(torch.load(path, weights_only=True))
        loop.run()
        a, b = whole.state_dict(), resumed.state_dict()
        assert a.keys() == b.keys()
        assert all(torch.equal(a[name], b[name]) for name in a)
        first = torch.load(path, weights_only=True)["state_dict"]
        assert not all(torch.equal(a[name], first[name]) for name in a)  # the last two steps did something

    def test_what_shows_nothing_teaches_nothing(self, tiny_context: Build) -> None:
        """No pixel in view: neither a loss, nor a gradient, nor a NaN of a mean over nothing."""
        stage = self.make(steps=4)
        stage.begin(tiny_context(blind=True))
        loss = stage(stage.render(stage.draw(Part(0, range(4), range(4)))), 0)
        loss.backward()
        assert loss == 0
        assert all((p.grad == 0).all() for p in stage.parameters() if p.grad is not None)

    def test_says_whether_it_learns_from_labelled_frames_alone(
        self, tiny_context: Build, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        context, stage, seen = tiny_context(), self.make(steps=4), set[int]()
        stage.begin(context)
        image = context.frames.image
        monkeypatch.setattr(context.frames, "image", lambda number: seen.add(number) or image(number))
        for step in range(4):
            stage.draw(Part(step, range(4), range(4)))
        assert stage.facts()["labels_alone"] == (seen <= {*context.frames.labelled.tolist()})

    def test_two_processes_learn_what_one_does(self, tiny_context: Build, monkeypatch: pytest.MonkeyPatch) -> None:
        def begun(**options: Any) -> Stage:
            stage = self.make(steps=4)
            stage.begin(tiny_context(round_view=True, **options))
            return stage

        alone = begun()
        expected = gradients(alone, Part(1, range(4), range(4)))
        stages = [begun(rank=rank, world=2) for rank in range(2)]
        found: list[list[Tensor]] = [[], []]

        def compute(rank: int) -> None:
            found[rank] = gradients(stages[rank], Part(1, range(2 * rank, 2 * rank + 2), range(4)))

        meet(monkeypatch, 2)
        threads = [threading.Thread(target=compute, args=(rank,), name=str(rank)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(stage.last_loss == pytest.approx(alone.last_loss.item(), rel=1e-4) for stage in stages)
        if alone.last_taught is not None:
            assert all(stage.last_taught == pytest.approx(alone.last_taught.item(), abs=1e-3) for stage in stages)
        for one, a, b in zip(expected, *found, strict=True):
            torch.testing.assert_close((a + b) / 2, one, rtol=1e-3, atol=1e-5)
        for name, buffer in alone.named_buffers():
            for stage in stages:
                torch.testing.assert_close(stage.get_buffer(name), buffer, rtol=1e-3, atol=1e-4)


def supervised_steps(name: str) -> int:
    """How many steps of a method learn from labels."""
    stages = find_method(name)(find_method(name).Settings()).stages()
    return sum(stage.settings.steps or 0 for stage in stages if isinstance(stage, Stage))
