"""DMT: two models that start differently, each taught what the other was sure of a round before."""

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from stage_tester import EASY, QUICK, StageTester, supervised_steps, train_accuracy
from torch import Tensor, nn

from suture.data.classes import IGNORE
from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic
from suture.losses.dynamic_weights import dynamic_weights
from suture.methods.dmt import (
    DMT,
    Learning,
    OtherStart,
    RoundSettings,
    Teaching,
    class_thresholds,
    level_counts,
)
from suture.methods.pseudo_labels import Mapped, PseudoLabels, PseudoSettings
from suture.methods.stage import START, Part, Stage, StageContext, TrainingSettings
from suture.methods.supervised import Supervised
from suture.models.encoder_weights import read_tensors
from suture.models.segmenter import set_dropout
from suture.training.config import Config, load_config
from suture.training.train import train

Build = Callable[..., StageContext]
WHOLE = Part(0, range(8), range(8))


def taught(tiny_context: Build) -> Build:
    """Builds jobs whose unlabelled frames have their truth as pseudo labels, with any confidence."""

    def build(*args: Any, **options: Any) -> StageContext:
        context, labelled = tiny_context(*args, **options), tiny_context(*args, **options | {"every": 1})
        rng = np.random.default_rng(0)
        context.frames.pseudo = {n: labelled.frames.labels(n) for n in context.frames.unlabelled.tolist()}
        context.frames.confidence = {
            n: rng.integers(256, size=labels.shape).astype(np.uint8) for n, labels in context.frames.pseudo.items()
        }
        return context

    return build


class TestLearning(StageTester):
    @pytest.fixture
    def tiny_context(self, tiny_context: Build) -> Build:
        return taught(tiny_context)

    def make(self, **settings: Any) -> Learning:
        return Learning("round-1-a", RoundSettings(batch=4, **settings), 0.6, handed_on=True)


def begun(context: StageContext, rate: float = 0.5, **settings: Any) -> Learning:
    stage = Learning("round-1-a", RoundSettings(**settings), rate, handed_on=True)
    stage.begin(context)
    return stage


# The stages


def plan() -> list[Any]:
    return list(DMT(DMT.Settings()).stages())


def test_each_model_goes_on_from_its_own_weights_and_learns_the_other_s_labels_of_the_round_before() -> None:
    stages = plan()
    names = [stage.name for stage in stages]
    assert len(set(names)) == len(names)
    last = {"a": "pretrain-a", "b": "pretrain-b"}
    assert names[:2] == list(last.values())
    assert [stage.start_from for stage in stages[:2]] == [None, START]
    assert [type(stage) for stage in stages[:2]] == [Supervised, OtherStart]
    round_of = {"a": 0, "b": 0}
    for labels, learning in zip(stages[2::2], stages[3::2], strict=True):
        assert isinstance(labels, Teaching)
        assert isinstance(learning, Learning)
        learner = learning.name[-1]
        teacher = {"a": "b", "b": "a"}[learner]
        round_of[learner] += 1
        number = round_of[learner]
        assert learning.name == f"round-{number}-{learner}"
        assert learning.rate == [0.2, 0.4, 0.6, 0.8, 1.0][number - 1]
        before = lambda model, n: f"round-{n}-{model}" if n else f"pretrain-{model}"  # noqa: E731
        assert learning.start_from == before(learner, number - 1)
        assert labels.start_from == before(teacher, number - 1)
        assert names.index(labels.start_from) < names.index(labels.name)
    assert names[-1] == "round-5-a"  # what is handed on
    assert round_of == {"a": 5, "b": 4}  # B's fifth round would reach nobody


def test_a_has_as_many_steps_as_the_baseline() -> None:
    of_a = [stage.settings.steps for stage in plan() if isinstance(stage, Stage) and stage.name.endswith("a")]
    assert sum(of_a) == supervised_steps("supervised")


def test_says_which_steps_teach_the_model_that_is_handed_on(tiny_context: Build) -> None:
    told = {}
    for stage in plan():
        if isinstance(stage, Stage):
            stage.total_steps, stage.lr = stage.settings.steps, 1e-4
            told[stage.name] = stage.facts()
            assert stage.key == ("method.pretrain" if "pretrain" in stage.name else "method.round")
    alone, every = ({"batch": 8, "lr": 1e-4, "labels_alone": labels_alone} for labels_alone in (True, False))
    assert told["pretrain-a"] == {"steps": 1000, **alone}
    assert told["pretrain-b"] == {"steps": 1000, **alone, "supervised_steps": 0}
    assert told["round-1-a"] == {"steps": 200, **every}
    assert told["round-1-b"] == {"steps": 200, **every, "supervised_steps": 0}


@pytest.mark.parametrize("wrong", [{"rates": []}, {"rates": [0.0]}, {"rates": [1.2]}, {"round": {"labelled": 8}}])
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        DMT.Settings(**wrong)


def test_b_starts_from_another_decoder_and_classifier(tiny_context: Build) -> None:
    def start(seed: int) -> dict[str, Tensor]:
        context = tiny_context(seed=seed)
        before = {name: tensor.clone() for name, tensor in context.segmenter.state_dict().items()}
        stage = OtherStart("pretrain-b", TrainingSettings(), start_from=START)
        stage.begin(context)
        after = stage.segmenter.state_dict()
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        assert {"head.conv.weight", "head.classifier.weight"} < changed
        assert any(name.startswith("decoder.") for name in changed)
        assert not any(name.startswith("encoder.") for name in changed)
        return after

    one, again, other = start(0), start(0), start(1)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["head.classifier.weight"], other["head.classifier.weight"])


# Teaching


def test_levels_tell_apart_what_is_almost_sure() -> None:
    stage = Teaching("labels-1-a", PseudoSettings())
    sure = torch.cat([torch.linspace(0.2, 1, 1000), 1 - torch.logspace(-1, -7, 1000)]).sort().values
    levels = stage.levels(sure)
    assert levels.min() >= 0
    assert levels.max() == 255
    assert (levels.diff() >= 0).all()
    assert levels.unique().numel() > 200
    assert len({stage.levels(torch.tensor(p)).item() for p in (0.99, 0.999, 0.9999, 0.99999)}) == 4
    said = stage.confidence(levels.numpy().astype(np.uint8))
    np.testing.assert_allclose(1 - said, 1 - sure.numpy(), rtol=0.04, atol=1e-7)


class Says(nn.Module):
    """Stands for a segmenter: the same class everywhere, with some confidence."""

    def __init__(self, label: int) -> None:
        super().__init__()
        self.label = label

    def forward(self, images: Tensor) -> Tensor:
        logits = torch.zeros(len(images), 3, *images.shape[-2:])
        logits[:, self.label] = 8
        return logits


def test_labels_take_the_place_of_those_of_the_round_before(tiny_context: Build) -> None:
    context = tiny_context(segmenter=Says(1))
    for label, name in ((1, "labels-1-a"), (2, "labels-1-b")):
        context.segmenter = Says(label)
        stage = Teaching(name, PseudoSettings())
        stage.run(context)
        stage.load(context)
        assert [path.name for path in (context.folder / "pseudo").iterdir()] == [name]
        assert sorted(context.frames.pseudo) == context.frames.unlabelled.tolist()
        assert all((labels == label).all() for labels in context.frames.pseudo.values())
    sure = torch.tensor([0.0, 0.0, 8.0]).softmax(0).max()
    np.testing.assert_allclose(1 - stage.confidence(context.frames.confidence[1]), 1 - sure, rtol=0.04)


def test_finished_videos_are_not_labelled_again(tiny_context: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    context = tiny_context(segmenter=Says(1))
    Teaching("labels-1-a", PseudoSettings()).run(context)
    monkeypatch.setattr(PseudoLabels, "_label", None)
    Teaching("labels-1-a", PseudoSettings()).run(context)


# Learning


@given(seed=st.integers(0, 2**20), rate=st.sampled_from([0.01, 0.2, 0.4, 0.6, 0.8, 1.0]), few=st.booleans())
def test_class_balanced_thresholds_are_those_of_sorting(seed: int, rate: float, few: bool) -> None:
    """The surest pixel, and the next, and so on, until the share of the class is reached."""
    rng = np.random.default_rng(seed)

    frames: Any = SimpleNamespace(
        pseudo={n: rng.choice([0, 1, 2, IGNORE], size=(6, 5)).astype(np.uint8) for n in range(3)},
        confidence={n: rng.integers(256 - 250 * few, size=(6, 5)).astype(np.uint8) for n in range(3)},
    )
    found = class_thresholds(level_counts(frames), rate)
    labels, levels = (np.stack(list(maps.values())) for maps in (frames.pseudo, frames.confidence))
    for label in range(3):
        of_class = sorted(levels[labels == label].tolist(), reverse=True)
        if of_class:
            wanted = next(n for n in range(1, len(of_class) + 1) if n >= rate * len(of_class))
            assert found[label] == of_class[wanted - 1]
            kept = (levels[labels == label] >= found[label]).sum()
            assert kept >= rate * len(of_class)
            assert kept - levels[labels == label].tolist().count(found[label]) < rate * len(of_class)


def test_only_the_surest_of_each_class_are_learnt_and_all_of_the_truth(tiny_context: Build) -> None:
    context = taught(tiny_context)({"a": 24}, stored=(32, 32), round_view=True)
    stage = begun(context, rate=0.4, batch=24, labelled=3, augment={"crop": (1.0, 1.0), "flip": False})
    (_, labels, _), true = stage.render(stage.draw(Part(0, range(24), range(24))))
    everything = stage.context.frames
    inside = torch.from_numpy(everything.pixels.inside("a"))
    assert ((labels[true] != IGNORE) == inside).all()
    whole = np.stack([everything.pseudo[n] for n in everything.unlabelled])
    for label in range(3):
        share = (labels[~true] == label).sum() / (21 * (whole == label).mean(0).sum())
        assert share.item() == pytest.approx(0.4, abs=0.08)


def test_batches_mix_labelled_and_pseudo_labelled_frames(tiny_context: Build) -> None:
    context = taught(tiny_context)(numbered=True)
    stage = begun(context, augment={"color": "none"})
    seen: Counter[int] = Counter()
    for step in range(4):
        batch = stage.render(stage.draw(Part(step, range(8), range(8))))
        numbers = (batch.views[0].mean((1, 2, 3)) * 25.5).round().int()
        assert batch.true.sum() == 2
        assert batch.true[:4].sum() == batch.true[4:].sum() == 1  # two processes have one each
        assert set(numbers[batch.true].tolist()) <= set(context.frames.labelled.tolist())
        assert set(numbers[~batch.true].tolist()) <= set(context.frames.unlabelled.tolist())
        seen += Counter(numbers.tolist())
    assert all(seen[n] == 2 for n in context.frames.labelled.tolist())  # 4 labelled frames, 8 places
    assert all(seen[n] == 3 for n in context.frames.unlabelled.tolist())  # 8 others, 24 places


def test_loss_is_the_paper_s(tiny_context: Build) -> None:
    """Σ w·CE / number of pixels that are not ignored; w = 1 on truly labelled ones."""
    stage = begun(taught(tiny_context)(round_view=True), agreed=2, disputed=3)
    stage.segmenter.eval()
    set_dropout(stage, active=False)
    batch = stage.render(stage.draw(WHOLE))
    (images, labels, confidence), true = batch
    total = stage.loss(batch)
    logits = stage.segmenter(images)
    losses = torch.nn.functional.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="none")
    weights = torch.where(true[:, None, None], 1.0, dynamic_weights(logits, labels, confidence, 2, 3))
    expected = (weights * losses).sum() / (labels != IGNORE).sum()
    torch.testing.assert_close(total.loss / total.weight, expected)
    assert (labels == IGNORE).any()


def test_overfits_a_few_frames(tiny_context: Build, fit: Any) -> None:
    """The whole method: two models, their labels for one another, two rounds."""
    context = tiny_context({"a": 4, "b": 4}, every=2, stored=(32, 32))
    before = train_accuracy(context.segmenter, context)
    shared = {"batch": 4, "optimizer": QUICK, "augment": EASY}
    settings = {"pretrain": {"steps": 30, **shared}, "round": {"steps": 20, **shared}, "rates": [0.5, 1.0]}
    reached = {START: deepcopy(context.segmenter.state_dict())}
    for stage in DMT(DMT.Settings(**settings)).stages():
        context.segmenter.load_state_dict(reached[stage.start_from or START])
        if isinstance(stage, Teaching):
            stage.run(context)
            stage.load(context)
        else:
            fit(stage, context)
            reached[stage.name] = deepcopy(stage.outcome().state_dict())
    assert before < 0.8
    assert train_accuracy(context.segmenter, context) > 0.9


# A run


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Two rounds, on as little as there can be."""
    dataset = write_synthetic(
        tmp_path / "data",
        SyntheticSettings(cases=3, frames=8, shots=2, width=48, height=48),
        container="png",
        progress=False,
    )
    shared = ("batch=4", "steps=2")
    return load_config(
        dataset,
        overrides=[
            "method=dmt",
            *(f"method.{stage}.{setting}" for stage in ("pretrain", "round") for setting in shared),
            "method.rates=[0.5, 1.0]",
            "data.size=32",
            "data.labelling.every=3",
            f"data.cache={tmp_path / 'cache'}",
            "model.encoder=tu-test_resnet",
            "model.weights=null",
            "compute.accelerator=cpu",
            "evaluation.splits=[]",
            "evaluation.completion=false",
        ],
    )


def weights_in(folder: Path, stage: str) -> dict[str, Tensor]:
    (path,) = folder.glob(f"stages/*-{stage}/weights.safetensors")
    return read_tensors(path)


def test_a_run_teaches_as_planned(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[tuple[str, dict[str, Tensor]]] = []
    learnt: dict[str, set[str]] = {}

    def meet(stage: Any, context: StageContext) -> None:
        met.append((stage.name, {name: tensor.clone() for name, tensor in context.segmenter.state_dict().items()}))
        if isinstance(context.frames.pseudo, Mapped):
            learnt[stage.name] = {Path(file.base.filename).parent.name for file in context.frames.pseudo.files}

    begin, run = Stage.begin, Teaching.run
    monkeypatch.setattr(Stage, "begin", lambda stage, context: (meet(stage, context), begin(stage, context))[1])
    monkeypatch.setattr(
        Teaching, "run", lambda stage, context, *more: (meet(stage, context), run(stage, context, *more))[1]
    )

    whole = tmp_path / "whole"
    train(config, whole, Console(quiet=True))
    starts = {"labels-1-a": "pretrain-a", "round-1-b": "pretrain-b", "labels-1-b": "pretrain-b"}
    starts |= {"round-1-a": "pretrain-a", "labels-2-b": "round-1-b", "round-2-a": "round-1-a"}
    assert [name for name, _ in met] == ["pretrain-a", "pretrain-b", *starts]
    for name, found in met[2:]:
        expected = weights_in(whole, starts[name])
        assert all(torch.equal(found[key], expected[key]) for key in expected)
    (_, a), (_, b) = met[:2]
    assert all(torch.equal(a[key], b[key]) for key in a)  # B makes itself another start from the same encoder
    assert not torch.equal(
        weights_in(whole, "pretrain-a")["head.classifier.weight"],
        weights_in(whole, "pretrain-b")["head.classifier.weight"],
    )
    assert {name: folders for name, folders in learnt.items() if name.startswith("round")} == {
        "round-1-b": {"labels-1-a"},
        "round-1-a": {"labels-1-b"},
        "round-2-a": {"labels-2-b"},
    }
    assert [path.name for path in (whole / "pseudo").iterdir()] == ["labels-2-b"]

    handed_on, last = read_tensors(whole / "model.safetensors"), weights_in(whole, "round-2-a")
    assert all(torch.equal(handed_on[key], last[key]) for key in last)
