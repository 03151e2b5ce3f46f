"""What all stages share: batches that are a function of seed, stage and step, however they are divided."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from stage_tester import Build
from torch import nn

from suture.data.sampling.augment import Augment
from suture.methods.optim import Lars
from suture.methods.stage import Batches, OptimizerSettings, Part, Stage, Total, TrainingSettings
from suture.methods.strong import StrongSettings
from suture.methods.supervised import Supervised
from suture.models.compile_blocks import blocks
from suture.training.loop import Callback, TrainingLoop


class Line(Stage):
    """The smallest stage: a weight for each class learns the mean of the places of its batches."""

    def prepare(self) -> int:
        self.seeds: list[int] = []
        self.moved: list[int] = []
        return 10

    def draw(self, part: Part) -> Any:
        return torch.tensor(list(part.own)), torch.tensor(part.step)

    def loss(self, batch: Any) -> Total:
        self.seeds.append(torch.initial_seed())
        places = batch[0].float()
        weight = next(p for p in self.segmenter.parameters())
        return Total(((weight.mean() - places) ** 2).sum(), torch.tensor(len(places)))

    def after_step(self) -> None:
        self.moved.append(self.global_step)


class Little(nn.Module):
    """A segmenter as far as `Line` and the optimiser know."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(2, 2)
        self.decoder = nn.Linear(2, 2)
        self.head = nn.Linear(2, 2)


def line(tiny_context: Build, settings: dict[str, Any], **context: Any) -> Line:
    stage = Line("line", TrainingSettings(**settings))
    stage.begin(tiny_context({"a": 2}, segmenter=Little(), **context))
    return stage


@pytest.mark.parametrize("accumulate", [1, 2, 4])
@pytest.mark.parametrize("world", [1, 2])
def test_parts_and_processes_divide_a_batch_without_rest(tiny_context: Build, accumulate: int, world: int) -> None:
    places: dict[int, list[int]] = {step: [] for step in range(3)}
    for rank in range(world):
        stage = line(tiny_context, {"steps": 3, "batch": 8, "accumulate": accumulate}, rank=rank, world=world)
        stage.draw = lambda part: part  # type: ignore[method-assign]
        parts = list(Batches(stage, 0))
        assert len(parts) == 3 * accumulate
        for part in parts:
            places[part.step] += part.own
            assert len(part.all) == 8 // accumulate
            assert set(part.own) <= set(part.all)
    assert all(sorted(found) == list(range(8)) for found in places.values())


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_do_not_change_the_order(tiny_context: Build, workers: int) -> None:
    settings = {"steps": 5, "batch": 4, "accumulate": 2}
    alone = list(line(tiny_context, settings).loader(0))
    shared = list(line(tiny_context, settings, workers=workers).loader(0))
    assert len(alone) == len(shared) == 10
    assert all(
        torch.equal(a, b) for one, other in zip(alone, shared, strict=True) for a, b in zip(one, other, strict=True)
    )
    later = [int(step) for _, step in line(tiny_context, settings, workers=workers).loader(3)]
    assert later == [3, 3, 4, 4]


# The loss


def test_the_loss_is_a_mean_over_the_batch(tiny_context: Build) -> None:
    stage = line(tiny_context, {"batch": 4})
    batch = stage.draw(Part(0, range(4), range(4)))
    total = stage.loss(batch)
    assert stage(batch, 0).item() == pytest.approx(total.loss.item() / 4)
    assert stage.last_loss.item() == pytest.approx(total.loss.item() / 4)


def test_a_batch_without_any_pixel_has_no_loss_and_no_gradient(tiny_context: Build) -> None:
    stage = line(tiny_context, {"batch": 4})
    weight = next(stage.segmenter.parameters())
    stage.loss = lambda batch: Total((weight * 0).sum(), torch.tensor(0))  # type: ignore[method-assign]
    stage(None, 0).backward()
    assert stage.last_loss == 0
    assert (weight.grad == 0).all()


def test_processes_divide_by_the_global_weight(tiny_context: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient that DDP averages over two processes is that of one process with the whole batch."""
    whole = line(tiny_context, {"batch": 4})
    batch = whole.draw(Part(0, range(4), range(4)))
    whole(batch, 0).backward()
    expected = next(whole.segmenter.parameters()).grad
    state = whole.segmenter.state_dict()

    stages = [line(tiny_context, {"batch": 4}, rank=rank, world=2) for rank in range(2)]
    # Parts of unequal weight: one process has three of the four samples.
    parts = [Part(0, range(3), range(4)), Part(0, range(3, 4), range(4))]
    totals = []
    for stage, part in zip(stages, parts, strict=True):
        stage.segmenter.load_state_dict(state)
        totals.append(stage.loss(stage.draw(part)))
    weight = sum(total.weight for total in totals)
    loss = sum(total.loss.detach() for total in totals)
    # A stage asks for the sum of its weights, and then for that of its losses.
    answers = iter([weight, loss] * 2)
    monkeypatch.setattr("suture.methods.stage.all_sum", lambda value: next(answers))
    for stage, part in zip(stages, parts, strict=True):
        stage(stage.draw(part), 0).backward()
        assert stage.last_loss.item() == pytest.approx(whole.last_loss.item())
    gradients = [next(stage.segmenter.parameters()).grad for stage in stages]
    torch.testing.assert_close((gradients[0] + gradients[1]) / 2, expected)


# Training


def test_after_step_is_called_once_the_weights_have_moved(tiny_context: Build, fit: Any) -> None:
    stage = Line("line", TrainingSettings(steps=3, batch=4, accumulate=2))
    fit(stage, tiny_context({"a": 2}, segmenter=Little()))
    assert stage.moved == [1, 2, 3]


def test_dropout_is_seeded_by_stage_step_and_part(tiny_context: Build, fit: Any) -> None:
    def seeds(name: str = "line", **options: Any) -> list[int]:
        stage = Line(name, TrainingSettings(steps=3, batch=4, accumulate=2))
        fit(stage, tiny_context({"a": 2}, segmenter=Little(), **options))
        return stage.seeds

    first = seeds()
    assert len(set(first)) == 6
    assert seeds() == first
    assert not set(seeds(seed=1)) & set(first)
    assert not set(seeds("other")) & set(first)
    assert not set(seeds(rank=1)) & set(first)


def test_the_same_seed_gives_the_same_weights(tiny_context: Build, fit: Any) -> None:
    def weights(seed: int) -> dict[str, torch.Tensor]:
        context = tiny_context(seed=seed)
        fit(Supervised("train", TrainingSettings(steps=2, batch=2, augment={"color": "strong"})), context)
        return context.segmenter.state_dict()

    one, same, other = weights(0), weights(0), weights(1)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_hands_on_the_average_of_the_weights_if_asked(tiny_context: Build, fit: Any) -> None:
    seen: list[torch.Tensor] = []

    class Watch(Callback):
        def on_step_start(self, loop: TrainingLoop) -> None:
            seen.append(loop.stage.segmenter.encoder.weight.detach().clone())

    stage = Line("line", TrainingSettings(steps=4, batch=4, ema=0.15, optimizer=OptimizerSettings(lr=0.1)))
    fit(stage, tiny_context({"a": 2}, segmenter=Little()), Watch())
    assert stage.global_step == 4
    last = stage.segmenter.encoder.weight.detach()
    average, *moved = [*seen, last]  # the average begins as the weights do
    for step, weight in enumerate(moved, 1):
        momentum = min(1 - 10 / (step + 9), 0.15)
        average = momentum * average + (1 - momentum) * weight
    outcome = stage.outcome()
    assert outcome is not stage.segmenter
    torch.testing.assert_close(outcome.encoder.weight, average)
    assert not torch.allclose(average, last)


def test_without_an_average_the_last_weights_are_handed_on(tiny_context: Build) -> None:
    stage = line(tiny_context, {})
    assert stage.outcome() is stage.segmenter


def test_a_stage_frees_what_the_one_before_froze(tiny_context: Build) -> None:
    segmenter = Little().eval().requires_grad_(False)
    stage = Line("line", TrainingSettings())
    stage.begin(tiny_context({"a": 2}, segmenter=segmenter))
    assert all(parameter.requires_grad for parameter in segmenter.parameters())
    assert segmenter.training


# Settings


@pytest.mark.parametrize(("kind", "expected"), [("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD), ("lars", Lars)])
def test_optimizers_by_name_with_a_rate_for_each_part(tiny_context: Build, kind: str, expected: type) -> None:
    settings = {"kind": kind, "lr": 0.5, "decoder_factor": 2, "head_factor": 3, "weight_decay": 0.2}
    stage = line(tiny_context, {"optimizer": settings})
    optimizer = stage.make_optimizer()
    assert type(optimizer) is expected
    rates = {group["name"]: group["lr"] for group in optimizer.param_groups}
    assert rates == {"encoder": 0.5, "decoder": 1.0, "head": 1.5}
    assert all(group["weight_decay"] == 0.2 for group in optimizer.param_groups)


def rates(stage: Stage, steps: int) -> list[float]:
    return [stage.make_optimizer().param_groups[0]["lr"] * stage.lr_factor(step) for step in range(steps)]


def test_the_learning_rate_falls_over_the_whole_stage(tiny_context: Build) -> None:
    poly = rates(line(tiny_context, {"steps": 10, "optimizer": {"lr": 1.0}}), 11)
    assert poly == pytest.approx([(1 - step / 10) ** 0.9 for step in range(11)])
    linear = rates(line(tiny_context, {"steps": 10, "optimizer": {"lr": 1.0, "power": 1}}), 11)
    assert linear == pytest.approx([1 - step / 10 for step in range(11)])


@pytest.mark.parametrize(("said", "expected"), [({}, 1e-3), ({"trust": 0.02}, 0.02)])
def test_lars_trusts_as_much_as_it_is_told(tiny_context: Build, said: dict[str, float], expected: float) -> None:
    stage = line(tiny_context, {"optimizer": {"kind": "lars", "lr": 1.0, **said}})
    assert {group["trust"] for group in stage.make_optimizer().param_groups} == {expected}


def test_a_cosine_warms_up_by_epochs(tiny_context: Build) -> None:
    # An epoch is 10 frames, 5 steps: two of them are warm-up.
    optimizer = {"lr": 2.0, "schedule": "cosine", "warmup_epochs": 2}
    cosine = rates(line(tiny_context, {"steps": None, "epochs": 8, "batch": 2, "optimizer": optimizer}), 41)
    assert cosine[0] == pytest.approx(0.02)
    assert cosine[10] == max(cosine) == pytest.approx(2.0)
    assert cosine[25] == pytest.approx(1.0, rel=1e-3)
    assert cosine[40] == pytest.approx(1e-6)
    short = rates(line(tiny_context, {"steps": 10, "batch": 2, "optimizer": optimizer}), 11)
    assert short[5] == max(short) == pytest.approx(2.0)  # at most half of the stage


@pytest.mark.parametrize(
    ("settings", "frames", "steps"),
    [
        ({"steps": 7}, 100, 7),
        ({"steps": None, "epochs": 2, "batch": 8}, 100, 25),
        ({"steps": None, "epochs": 0.01}, 8, 1),
    ],
)
def test_a_length_is_in_steps_or_in_epochs(settings: dict, frames: int, steps: int) -> None:
    assert TrainingSettings(**settings).total_steps(frames) == steps


@pytest.mark.parametrize(
    ("device", "steps", "said", "compiled"),
    [
        ("cuda", 10**8, None, True),
        ("cuda", 100, None, False),
        ("cpu", 10**8, None, False),
        ("cpu", 100, True, True),
        ("cuda", 10**8, False, False),
    ],
)
def test_long_stages_are_compiled(
    tiny_context: Build, monkeypatch: pytest.MonkeyPatch, device: str, steps: int, said: bool | None, compiled: bool
) -> None:
    monkeypatch.setattr("suture.methods.stage.can_compile", lambda: True)
    context = replace(tiny_context(), device=torch.device(device), compile=said)
    stage = Supervised("train", TrainingSettings(steps=steps, batch=4))
    stage.begin(context)

    def calls() -> set[bool]:
        return {block._compiled_call_impl is not None for block in blocks(stage)}

    assert calls() == {compiled}
    stage.end()
    assert calls() == {False}


def test_the_smallest_crop_is_that_of_all_views() -> None:
    assert TrainingSettings().smallest_crop == TrainingSettings().augment.crop[0]
    assert StrongSettings(strong=Augment(crop=(0.2, 1))).smallest_crop == 0.2
