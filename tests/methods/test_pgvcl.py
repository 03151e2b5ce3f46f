"""The contrast stage computes the paper's loss, with keys from the momentum branch, however its batch is divided."""

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from stage_tester import EASY, QUICK, StageTester, stages_of, train_accuracy
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

Build = Callable[..., StageContext]
ALL = Part(0, range(4), range(4))
VIDEOS = {"a.1": 4, "a.2": 3, "b": 4, "c": 5}
LIGHT = {"architecture": "pspnet"}
"""For what does not depend on the architecture: a tenth of DeepLab's work."""
by_apart = pytest.mark.parametrize("apart", ["case", "video"])


def settings(**said: Any) -> ContrastSettings:
    """Small, and with optimiser steps that show."""
    said = {"steps": 4, "epochs": None, "hidden": 16, "channels": 8} | said
    return ContrastSettings(**{"optimizer": {"kind": "adamw", "lr": 1e-3, "head_factor": 1}} | said)


def begun(context: StageContext, *, frozen: bool = True, pseudo: bool = True, **said: Any) -> Contrast:
    """A stage ready to compute; frozen: dropout off and batch norm as in inference."""
    if pseudo:
        with_pseudo_labels(context)
    stage = Contrast("contrast", settings(**said))
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

    def make(self, **said: Any) -> Contrast:
        return Contrast("contrast", settings(keys={"mode": "bank"}, batch=4, **said))


def numbers_of(images: Tensor) -> list[int]:
    """Which frames rendered views are of, where frames are numbered and colours left alone."""
    return (images.mean((1, 2, 3)) * 25.5).round().int().tolist()


def slow_loss(query: Tensor, labels: Tensor, keys: list[Tensor], key_labels: list[Tensor]) -> list[Tensor]:
    """The paper's equations for the pixels of one query frame, from the similarities of all pairs."""
    losses = []
    for feature, label in zip(query.flatten(1).T, labels.flatten(), strict=True):
        if label == IGNORE:
            continue
        positives, negative = [], torch.zeros(())
        for key, key_label in zip(keys, key_labels, strict=True):
            similarity = key.flatten(1).T @ feature
            same = key_label.flatten() == label
            other = ~same & (key_label.flatten() != IGNORE)
            positives.append(similarity[same])
            if other.any():
                negative = negative + similarity[other].mean()
        if len(torch.cat(positives)):
            positive = torch.cat(positives).mean()
            losses.append(-(positive.exp() / (positive.exp() + negative.exp())).log())
    return losses


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
        met_keys, met_labels = [keys[k] for k in met], [batch.keys.labels[k] for k in met]
        losses += slow_loss(query[b], batch.queries.labels[b], met_keys, met_labels)
    return torch.stack(losses).sum(), len(losses)


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


def test_a_draw_is_a_function_of_seed_stage_step_and_place(tiny_context: Build) -> None:
    def colors(seed: int = 0, name: str = "contrast", step: int = 0) -> Tensor:
        stage = Contrast(name, settings(augment={"color": "strong"}))
        stage.begin(tiny_context(VIDEOS, seed=seed))
        return stage.draw(ALL._replace(step=step)).keys.color

    first = colors()
    assert torch.equal(colors(), first)
    assert not any(torch.equal(other, first) for other in (colors(seed=1), colors(name="other"), colors(step=1)))


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
@pytest.mark.parametrize("mode", ["paper", "shared", "bank"])
def test_two_processes_are_one(tiny_context: Build, monkeypatch: pytest.MonkeyPatch, mode: str, apart: str) -> None:
    """The same views, the same keys, the same loss: from ranks that meet only in `all_gather`."""
    keys = {"mode": mode, "apart": apart}
    whole = begun(tiny_context(VIDEOS, **LIGHT), keys=keys)
    ranks = [begun(tiny_context(VIDEOS, rank=rank, world=2, **LIGHT), keys=keys) for rank in range(2)]
    for rank in ranks:
        rank.load_state_dict(whole.state_dict())
    for step in range(3):
        drawn = whole.draw(ALL._replace(step=step))
        parts = [stage.draw(Part(step, range(2 * r, 2 * r + 2), range(4))) for r, stage in enumerate(ranks)]
        assert drawn.query_numbers.tolist() == [n for part in parts for n in part.query_numbers.tolist()]
        assert drawn.own_numbers.tolist() == [row for part in parts for row in part.own_numbers.tolist()]
        one = whole.render(drawn)
        several = [stage.render(part) for stage, part in zip(ranks, parts, strict=True)]
        # Colours and labels are the same bit for bit; pixels up to the rounding of positions in the largest patch.
        assert torch.equal(drawn.queries.color, torch.cat([part.queries.color for part in parts]))
        assert torch.equal(one.queries.labels, torch.cat([part.queries.labels for part in several]))
        images = torch.cat([part.queries.images for part in several])
        torch.testing.assert_close(one.queries.images, images, atol=3e-5, rtol=0)
        own = [slice(0, part.own_numbers.numel()) for part in parts]
        pools = [
            (
                torch.cat(
                    [p.keys.images[o] for p, o in zip(several, own, strict=True)] + [part.keys.images[mine.stop :]]
                ),
                torch.cat(
                    [p.keys.labels[o] for p, o in zip(several, own, strict=True)] + [part.keys.labels[mine.stop :]]
                ),
            )
            for part, mine in zip(several, own, strict=True)
        ]
        for b in range(4):
            images, labels = pools[b // 2]
            met, also = drawn.others[b], parts[b // 2].others[b % 2]
            assert torch.equal(one.keys.labels[met], labels[also])
            torch.testing.assert_close(one.keys.images[met], images[also], atol=3e-5, rtol=0)

        total = whole.loss(one)
        sums = [stage.key_sums(part.keys) for stage, part in zip(ranks, several, strict=True)]
        gathered = [
            torch.cat([numbers.flatten() for numbers in (part.own_numbers for part in parts)]),
            *(torch.cat([s[o] for s, o in zip(pair, own, strict=True)]) for pair in zip(*sums, strict=True)),
        ]

        def all_gather(value: Tensor, gathered: list[Tensor] = gathered) -> Tensor:
            """What the other process has of the same kind is known already."""
            return next(whole for whole in gathered if whole.ndim == value.ndim and whole.dtype == value.dtype)

        monkeypatch.setattr("suture.methods.pgvcl.all_gather", all_gather)
        totals = [stage.loss(part) for stage, part in zip(ranks, several, strict=True)]
        monkeypatch.undo()
        assert sum(t.weight for t in totals) == total.weight
        torch.testing.assert_close(sum(t.loss for t in totals), total.loss, rtol=1e-4, atol=1e-3)
    if mode == "bank":
        for rank in ranks:
            torch.testing.assert_close(rank.bank.negatives, whole.bank.negatives, rtol=1e-4, atol=1e-4)
            assert torch.equal(rank.bank.frames, whole.bank.frames)


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
    ("keys", "cases", "videos", "told"),
    [
        ({}, 1, 1, "only one training case: the contrast has no keys of other videos"),
        ({}, 1, 4, " Use its 4 videos with --set method.contrast.keys.apart=video."),
        ({}, 2, 2, None),
        ({"apart": "video"}, 1, 1, "only one training video: the contrast has no keys of other videos"),
        ({"apart": "video"}, 1, 2, None),
        ({"other_videos": 0}, 1, 4, None),
    ],
)
def test_where_there_are_no_keys_of_other_videos_it_says_how_to_have_them(
    keys: dict, cases: int, videos: int, told: str | None
) -> None:
    hint = Contrast("contrast", settings(keys=keys)).hint(cases, videos)
    if told is None:
        assert hint is None
    else:
        assert told in hint
        assert ("apart=video" in hint) == (videos > 1)


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


@pytest.mark.parametrize("mode", ["paper", "shared", "bank"])
def test_learns_and_leaves_the_head_alone(tiny_context: Build, fit: Any, mode: str) -> None:
    context = tiny_context({"a": 4, "b": 4}, every=1, **LIGHT)
    before = copy.deepcopy(context.segmenter.state_dict())
    watch = Watch()
    said = settings(steps=14, batch=4, keys={"mode": mode}, augment={"crop": (0.8, 1.0), "color": "none"})
    stage = Contrast("contrast", said)
    fit(stage, context, watch)
    assert all(np.isfinite(watch.losses))
    # The bank begins empty, and a loss with fewer keys is smaller: it is judged from its second pass on.
    begin = 2 if mode == "bank" else 0
    assert np.mean(watch.losses[-3:]) < 0.9 * np.mean(watch.losses[begin : begin + 3])
    after = context.segmenter.state_dict()
    moved = {name.split(".")[0] for name in after if not torch.equal(after[name], before[name])}
    assert moved == {"encoder", "decoder"}
    assert stage.outcome() is context.segmenter

    finetune = Supervised("finetune", find_method("pgvcl").Settings().finetune)
    finetune.begin(context)
    assert context.segmenter.has_active_dropout
    assert all(p.requires_grad for p in context.segmenter.parameters())
    assert all(module.training for module in context.segmenter.modules())


def test_overfits_a_few_frames(tiny_context: Build, fit: Any) -> None:
    """All four stages: fine-tuning finds in the contrasted features what it needs, and the others learn it too."""
    context = tiny_context({"a": 4, "b": 4}, every=2, stored=(32, 32), architecture="deeplabv3plus")
    before = train_accuracy(context.segmenter, context)
    supervised = {"steps": 20, "batch": 4, "optimizer": QUICK, "augment": EASY}
    said = {"pretrain": supervised, "contrast": settings(steps=10), "finetune": supervised}
    names = []
    for stage in stages_of("pgvcl", said, context):
        fit(stage, context)
        names.append(stage.name)
    assert names == ["pretrain", "contrast", "finetune"]
    assert sorted(context.frames.pseudo) == context.frames.unlabelled.tolist()
    assert before < 0.8
    assert train_accuracy(context.segmenter, context) > 0.9


@by_apart
def test_the_state_holds_all_that_a_resumed_stage_needs(tiny_context: Build, apart: str) -> None:
    """Both branches, their statistics and the bank: a second stage that takes them over goes on exactly."""
    keys = {"mode": "bank", "apart": apart}
    stage = begun(tiny_context(VIDEOS), frozen=False, keys=keys)
    stage.train()
    stage.loss(stage.render(stage.draw(ALL)))
    again = begun(tiny_context(VIDEOS), frozen=False, keys=keys)
    again.load_state_dict(copy.deepcopy(stage.state_dict()))
    for one in (stage, again):
        one.on_train_start()
    totals = [one.loss(one.render(one.draw(ALL._replace(step=1)))) for one in (stage, again)]
    assert torch.equal(totals[0].loss, totals[1].loss)
    assert all(torch.equal(a, b) for a, b in zip(stage.state_dict().values(), again.state_dict().values(), strict=True))


@pytest.mark.parametrize(
    "wrong",
    [
        {"best_every": 10},
        {"temperature": 0},
        {"momentum": 1.1},
    ],
)
def test_refuses_impossible_settings(wrong: dict) -> None:
    with pytest.raises(ValidationError):
        ContrastSettings(**wrong)
