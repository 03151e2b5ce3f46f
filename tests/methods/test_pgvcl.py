"""The contrast stage computes the paper's loss, with keys from the momentum branch, however its batch is divided."""

import copy
from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from plain_example import plain
from stage_tester import Build, StageTester
from torch import Tensor, nn

from suture.data.classes import IGNORE
from suture.losses.pixel_contrast import ClassSums
from suture.methods.method import find_method
from suture.methods.optim import momentum_schedule
from suture.methods.pgvcl import Contrast, ContrastBatch, ContrastSettings
from suture.methods.pseudo_labels import PseudoLabels
from suture.methods.stage import Batches, Part, StageContext
from suture.methods.supervised import Supervised
from suture.training.loop import Callback, TrainingLoop

ALL = Part(0, range(4), range(4))
VIDEOS = {"a.1": 4, "a.2": 3, "b": 4, "c": 5}
LIGHT = {"architecture": "pspnet"}
"""For what does not depend on the architecture: a tenth of DeepLab's work."""
by_apart = pytest.mark.parametrize("apart", ["case", "video"])


def settings(**options: Any) -> ContrastSettings:
    """Small, and with optimiser steps that show."""
    options = {"steps": 4, "epochs": None, "hidden": 16, "channels": 8} | options
    return ContrastSettings(**{"optimizer": {"kind": "adamw", "lr": 1e-3, "head_factor": 1}} | options)


def begun(context: StageContext, *, frozen: bool = True, pseudo: bool = True, **options: Any) -> Contrast:
    """A stage ready to compute; frozen: dropout off and batch norm as in inference."""
    if pseudo:
        with_pseudo_labels(context)
    stage = Contrast("contrast", settings(**options))
    stage.begin(context)
    if frozen:
        stage.eval()
    return stage


def owners(context: StageContext, apart: str) -> list[str]:
    """The case or the video of every training frame."""
    videos = [video for video, _ in context.frames.places]
    return [video.case if apart == "case" else video.id for video in videos]


def with_pseudo_labels(context: StageContext) -> None:
    """Blocks of all classes and of ignore on the unlabelled frames."""
    generator = np.random.default_rng(0)
    blocks = np.array([0, 1, 2, IGNORE], np.uint8)
    drawn = {number: blocks[generator.integers(0, 4, (4, 4))] for number in context.frames.unlabelled.tolist()}
    context.frames.pseudo = {number: labels.repeat(8, 0).repeat(8, 1) for number, labels in drawn.items()}


class TestContrast(StageTester):
    """With the bank, which has more to remember than the weights."""

    @pytest.fixture
    def tiny_context(self, tiny_context: Build) -> Build:
        def build(*, blind: bool = False, **options: Any) -> StageContext:
            context = tiny_context(VIDEOS, blind=blind, **LIGHT, **options)
            if not blind:
                with_pseudo_labels(context)
            return context

        return build

    keys: ClassVar[dict[str, str]] = {"mode": "bank"}

    def make(self, **options: Any) -> Contrast:
        return Contrast("contrast", settings(keys=self.keys, batch=4, **options))


class TestSharedKeys(TestContrast):
    keys: ClassVar[dict[str, str]] = {"mode": "shared", "apart": "video"}


class TestDrawnKeys(TestContrast):
    keys: ClassVar[dict[str, str]] = {"mode": "paper"}


def numbers_of(images: Tensor) -> list[int]:
    """Which frames rendered views are of, where frames are numbered and colours left alone."""
    return (images.mean((1, 2, 3)) * 25.5).round().int().tolist()


class Heard:
    """The embeddings that a stage's two branches give."""

    def __init__(self, stage: Contrast) -> None:
        self.online: list[Tensor] = []
        self.momentum: list[Tensor] = []
        stage.online.register_forward_hook(lambda module, args, out: self.online.append(out))
        stage.momentum.register_forward_hook(lambda module, args, out: self.momentum.append(out))


def slow_batch_loss(batch: ContrastBatch, query: Tensor, keys: Tensor) -> tuple[Tensor, int]:
    """The loss of a batch of one process, from the embeddings of its queries and keys."""
    count, per_query = batch.own_numbers.shape
    losses = []
    for b in range(count):
        met = [*range(b * per_query, (b + 1) * per_query), *batch.others[b].tolist()]
        losses.append(plain.contrast_losses(query[b], batch.queries.labels[b], keys[met], batch.keys.labels[met]))
    return torch.cat(losses).sum(), sum(map(len, losses))


# The method


def test_the_method_reads_as_in_the_paper() -> None:
    kind = find_method("pgvcl")
    stages = list(kind(kind.Settings()).stages())
    assert [stage.name for stage in stages] == ["pretrain", "pseudo", "contrast", "finetune"]
    assert [type(stage) for stage in stages] == [Supervised, PseudoLabels, Contrast, Supervised]
    said = kind.Settings().contrast
    assert (said.keys.views, said.keys.same_shot, said.keys.other_videos, said.keys.mode) == (1, 1, 4, "paper")
    assert said.keys.apart == "case"
    assert (said.batch, said.epochs, said.augment.crop, said.augment.flip) == (4, 140, (0.3, 0.7), True)
    assert (said.optimizer.kind, said.optimizer.lr, said.optimizer.weight_decay) == ("lars", 1.0, 1e-5)
    assert (said.temperature, said.class_balanced) == (None, False)


# Which frames meet


@pytest.mark.parametrize("mode", ["paper", "shared", "bank"])
@pytest.mark.parametrize(
    ("same_shot", "other_videos", "apart"),
    [(0, 0, "case"), (1, 4, "case"), (1, 4, "video"), (2, 4, "case"), (1, 64, "case"), (1, 64, "video")],
)
def test_queries_meet_their_own_shots_and_other_videos(
    tiny_context: Build, mode: str, same_shot: int, other_videos: int, apart: str
) -> None:
    """Told from the rendered pixels themselves; excluded frames are not even in memory."""
    context = tiny_context(VIDEOS, numbered=True, excluded={"b": [1], "c": [0, 4]}, size=(8, 8))
    keys = {"mode": mode, "same_shot": same_shot, "other_videos": other_videos, "apart": apart}
    stage = begun(context, keys=keys, augment={"crop": (0.3, 0.7), "color": "none"})
    seen: list[int] = []
    within = 0
    cases, owner, shots = context.frames.cases, owners(context, apart), context.shots
    for step in range(7):
        batch = stage.render(stage.draw(ALL._replace(step=step)))
        queries, encoded = numbers_of(batch.queries.images), numbers_of(batch.keys.images)
        seen += queries
        assert queries == batch.query_numbers.tolist()
        per_query = 1 + (same_shot if mode != "bank" else 0)
        own = np.array(encoded[: 4 * per_query]).reshape(4, per_query)
        assert own.tolist() == batch.own_numbers.tolist()
        for b, query in enumerate(queries):
            assert own[b, 0] == query
            of_shot = batch.recalled[b].tolist() if mode == "bank" else own[b, 1:].tolist()
            assert len(of_shot) == same_shot
            assert all(shots[key] == shots[query] for key in of_shot)
            others = [encoded[place] for place in batch.others[b]]
            assert len(others) == (0 if mode == "bank" else other_videos)
            assert all(owner[key] != owner[query] for key in others)
            within += sum(cases[key] == cases[query] for key in others)
    assert (within > 0) == (apart == "video" and mode != "bank"), "keys of the case's other videos"
    assert Counter(seen[: 2 * len(context.frames)]) == Counter([*range(len(context.frames))] * 2)


def test_every_view_is_drawn_for_itself(tiny_context: Build) -> None:
    context = tiny_context(VIDEOS)
    batch = begun(context, keys={"views": 2}).draw(ALL)
    drawn = torch.cat([batch.queries.color, batch.keys.color])
    assert len({tuple(row) for row in drawn.tolist()}) > 0.7 * len(drawn)  # jitter leaves some colours alone
    boxes = torch.cat([batch.queries.images.boxes, batch.keys.images.boxes])[:, 2:]
    assert len({tuple(row) for row in boxes.tolist()}) == len(boxes)


# The loss


@pytest.mark.parametrize("mode", ["paper", "shared"])
@pytest.mark.parametrize(
    ("keys", "size"),
    [({"same_shot": 0, "other_videos": 0}, (32, 32)), ({}, (30, 37)), ({"views": 2, "same_shot": 2}, (32, 32))],
)
def test_equals_the_pairwise_loss_of_the_same_embeddings(
    tiny_context: Build, mode: str, keys: dict, size: tuple[int, int]
) -> None:
    context = tiny_context(VIDEOS, size=size)
    stage = begun(context, frozen=False, keys={"mode": mode} | keys)
    heard = Heard(stage)
    for step in range(1 if keys else 2):
        batch = stage.render(stage.draw(ALL._replace(step=step)))
        total = stage.loss(batch)
        assert heard.online[-1].shape[-2:] == batch.queries.labels.shape[-2:]
        expected, count = slow_batch_loss(batch, heard.online[-1], heard.momentum[-1])
        assert total.weight == count
        torch.testing.assert_close(total.loss, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["paper", "shared"])
def test_accumulated_parts_each_have_the_pairwise_loss(tiny_context: Build, mode: str) -> None:
    stage = begun(tiny_context(VIDEOS), keys={"mode": mode}, accumulate=2)
    heard = Heard(stage)
    batches = list(Batches(stage, 0))
    assert len(batches) == 8
    for drawn in batches[:2]:
        batch = stage.render(drawn)
        total = stage.loss(batch)
        expected, count = slow_batch_loss(batch, heard.online[-1], heard.momentum[-1])
        assert len(batch.query_numbers) == 2
        assert total.weight == count
        torch.testing.assert_close(total.loss, expected, rtol=1e-4, atol=1e-4)


@by_apart
def test_the_bank_meets_a_query_with_the_mean_of_other_videos(tiny_context: Build, apart: str) -> None:
    """N_v times the mean over what frames of other videos gave at their last visit, and what its shot's gave."""
    context = tiny_context(VIDEOS, **LIGHT)
    owner = owners(context, apart)
    stage = begun(context, keys={"mode": "bank", "other_videos": 3, "apart": apart})
    last: dict[int, ClassSums] = {}
    for step in range(8):
        batch = stage.render(stage.draw(ALL._replace(step=step)))
        sums = stage.key_sums(batch.keys)
        met = stage.query_contrasts(batch, sums)
        for b, query in enumerate(batch.query_numbers.tolist()):
            others = [value for n, value in last.items() if owner[n] != owner[query]]
            of_shot = [last[n] for n in batch.recalled[b].tolist() if n in last]
            counts = sums.counts[b] + sum(key.counts for key in of_shot)
            counts = counts + sum(3 / len(others) * other.counts for other in others)
            torch.testing.assert_close(met.positive_counts[b], counts, rtol=1e-4, atol=1e-4)
        for place, number in enumerate(batch.own_numbers.flatten().tolist()):
            last[number] = ClassSums(sums.sums[place], sums.counts[place])
    assert stage.bank.visited[:-1].all()


@by_apart
@pytest.mark.parametrize("mode", ["paper", "shared", "bank"])
def test_one_case_of_two_videos_has_keys_of_other_videos_by_video_alone(
    tiny_context: Build, mode: str, apart: str
) -> None:
    stage = begun(tiny_context({"a.1": 4, "a.2": 4}, **LIGHT), keys={"mode": mode, "apart": apart})
    several = apart == "video"
    for step in range(2):
        batch = stage.render(stage.draw(ALL._replace(step=step)))
        assert batch.others.shape == (4, 4 if several and mode != "bank" else 0)
        total = stage.loss(batch)
        assert total.loss.isfinite()
        assert total.weight > 0
    if mode == "bank":  # every frame was a query by now
        assert bool(stage.bank.expected(torch.arange(8), 4).positive_counts.any()) == several


@pytest.mark.parametrize(
    ("keys", "cases", "videos", "hint"),
    [
        ({}, 1, 1, "only one training case"),
        ({}, 1, 4, "Use its 4 videos with --set method.contrast.keys.apart=video."),
        ({}, 2, 2, None),
        ({"apart": "video"}, 1, 1, "only one training video"),
        ({"apart": "video"}, 1, 2, None),
        ({"other_videos": 0}, 1, 4, None),
    ],
)
def test_a_hint_tells_how_to_get_keys_of_other_videos(keys: dict, cases: int, videos: int, hint: str | None) -> None:
    message = Contrast("contrast", settings(keys=keys)).hint(cases, videos)
    assert message is None if hint is None else hint in message


# What takes no part


def test_pixels_outside_the_view_take_no_part(tiny_context: Build) -> None:
    context = tiny_context({"a": 5, "b": 5}, round_view=True, size=(48, 48))
    context.frames.pseudo = {}
    PseudoLabels("pseudo", find_method("pgvcl").Settings().pseudo).run(context)
    PseudoLabels("pseudo", find_method("pgvcl").Settings().pseudo).load(context)
    stage = begun(context, pseudo=False, augment={"crop": (0.8, 1.0), "color": "none"})
    batch = stage.render(stage.draw(ALL))
    outside = batch.queries.labels == IGNORE
    assert 0.1 < outside.float().mean() < 0.6
    assert (batch.keys.labels == IGNORE).any((1, 2)).all()
    heard: list[Tensor] = []
    stage.online.register_forward_hook(lambda module, args, out: (out.retain_grad(), heard.append(out))[0])
    stage.loss(batch).loss.backward()
    gradient = heard[0].grad.abs().sum(1)
    assert (gradient[outside] == 0).all()
    assert (gradient[~outside] > 0).any()
    sums = stage.key_sums(batch.keys)
    assert torch.equal(sums.counts.sum(1), (batch.keys.labels != IGNORE).sum((1, 2)).float())
    # Keys whose embeddings are others where there is no label have the same sums.
    embeddings = stage.momentum(batch.keys.images)
    stage.momentum.forward = lambda images: embeddings.masked_fill(batch.keys.labels[:, None] == IGNORE, 7.0)
    torch.testing.assert_close(stage.key_sums(batch.keys).sums, sums.sums, atol=1e-4, rtol=1e-4)


def test_frames_without_pseudo_labels_take_no_part(tiny_context: Build) -> None:
    context = tiny_context({"a": 8, "b": 8}, every=100, **LIGHT)
    stage = begun(context, pseudo=False)
    for step in range(4):
        batch = stage.render(stage.draw(ALL._replace(step=step)))
        unlabelled = ~np.isin(batch.query_numbers.numpy(), context.frames.labelled)
        assert (batch.queries.labels[unlabelled] == IGNORE).all()
        total = stage.loss(batch)
        assert total.loss.isfinite()
        assert (total.weight > 0) == (not unlabelled.all())


# The branches


def test_keys_come_from_the_momentum_weights(tiny_context: Build) -> None:
    stage = begun(tiny_context(VIDEOS))
    batch = stage.render(stage.draw(ALL))
    before = stage.key_sums(batch.keys)
    embeddings = stage.online(batch.queries.images)
    with torch.no_grad():
        for parameter in stage.online.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    assert not torch.allclose(stage.online(batch.queries.images), embeddings, atol=1e-3)
    assert torch.equal(stage.key_sums(batch.keys).sums, before.sums)
    stage.momentum.update(stage.online, 0.5)
    assert not torch.allclose(stage.key_sums(batch.keys).sums, before.sums, atol=1e-3)


class Watch(Callback):
    """The weights of both branches at the start of every step, and which layers are in training."""

    def __init__(self) -> None:
        self.online: list[list[Tensor]] = []
        self.momentum: list[list[Tensor]] = []
        self.losses: list[float] = []

    def on_step_start(self, loop: TrainingLoop) -> None:
        stage: Any = loop.stage
        self.online.append([p.detach().clone() for p in stage.online.parameters()])
        self.momentum.append([p.detach().clone() for p in stage.momentum.parameters()])
        for branch in (stage.online, stage.momentum):
            for module in branch.modules():
                if isinstance(module, nn.Dropout):
                    assert not module.training
                if isinstance(module, nn.BatchNorm2d):
                    assert module.training

    def on_step_end(self, loop: TrainingLoop) -> None:
        self.losses.append(float(loop.stage.last_loss))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_momentum_weights_follow_after_every_step(tiny_context: Build, fit: Any, accumulate: int) -> None:
    context = tiny_context(VIDEOS, **LIGHT)
    with_pseudo_labels(context)
    watch = Watch()
    stage = Contrast("contrast", settings(steps=3, momentum=0.8, accumulate=accumulate))
    fit(stage, context, watch)
    online = [*watch.online, [p.detach() for p in stage.online.parameters()]]
    momentum = [*watch.momentum, [p.detach() for p in stage.momentum.parameters()]]
    assert len(online) == 4
    assert all(torch.equal(a, b) for a, b in zip(online[0], momentum[0], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(online[1], online[0], strict=True))
    for step in range(1, 4):
        m = momentum_schedule(step, 3, 0.8)
        for before, after, target in zip(momentum[step - 1], momentum[step], online[step], strict=True):
            assert torch.equal(after, before.lerp(target, 1 - m))


def test_only_encoder_decoder_and_projector_learn(tiny_context: Build) -> None:
    stage = begun(tiny_context(VIDEOS), frozen=False)
    stage.loss(stage.render(stage.draw(ALL))).loss.backward()
    head = {id(p) for p in stage.segmenter.head.parameters()}
    learning = [p for p in stage.online.parameters() if id(p) not in head]
    assert all(p.grad is not None for p in learning)
    assert all(p.grad is None for p in stage.segmenter.head.parameters())
    assert all(p.grad is None and not p.requires_grad for p in stage.momentum.parameters())
    assert {id(p) for group in stage.groups() for p in group["params"]} == {id(p) for p in learning}


def test_learns_and_leaves_the_head_for_fine_tuning(tiny_context: Build, fit: Any) -> None:
    context = tiny_context({"a": 4, "b": 4}, every=1, **LIGHT)
    before = copy.deepcopy(context.segmenter.state_dict())
    watch = Watch()
    stage = Contrast("contrast", settings(steps=14, augment={"crop": (0.8, 1.0), "color": "none"}))
    fit(stage, context, watch)
    assert np.mean(watch.losses[-3:]) < 0.9 * np.mean(watch.losses[:3])
    after = context.segmenter.state_dict()
    moved = {name.split(".")[0] for name in after if not torch.equal(after[name], before[name])}
    assert moved == {"encoder", "decoder"}
    assert stage.outcome() is context.segmenter

    finetune = Supervised("finetune", find_method("pgvcl").Settings().finetune)
    finetune.begin(context)
    assert context.segmenter.has_active_dropout
    assert all(p.requires_grad for p in context.segmenter.parameters())
    assert all(module.training for module in context.segmenter.modules())
