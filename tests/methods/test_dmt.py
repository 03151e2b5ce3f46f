"""DMT: two models that start differently, each taught what the other was sure of a round before."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from stage_tester import Build, StageTester
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
from suture.models.encoder_weights import read_tensors
from suture.models.segmenter import set_dropout
from suture.training.config import Config, load_config
from suture.training.train import train

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
        return Learning("round-1-a", RoundSettings(batch=4, **settings), 0.6, final=True)


def begun(context: StageContext, rate: float = 0.5, **settings: Any) -> Learning:
    stage = Learning("round-1-a", RoundSettings(**settings), rate, final=True)
    stage.begin(context)
    return stage


# The stages


def plan() -> list[Any]:
    return list(DMT(DMT.Settings()).stages())


def test_each_model_learns_the_other_s_labels_of_the_round_before() -> None:
    stages = {stage.name: stage for stage in plan()}
    assert [*stages][:4] == ["pretrain-a", "pretrain-b", "labels-1-a", "round-1-b"]
    assert [stage.start_from for stage in list(stages.values())[:2]] == [None, START]
    assert [*stages][-2:] == ["labels-5-b", "round-5-a"]
    assert "round-5-b" not in stages  # nothing would use it
    for number, rate in enumerate((0.2, 0.4, 0.6, 0.8, 1.0), 1):
        for learner, teacher in ("ab", "ba") if number < 5 else ("ab",):
            learning, labels = stages[f"round-{number}-{learner}"], stages[f"labels-{number}-{teacher}"]
            before = f"round-{number - 1}" if number > 1 else "pretrain"
            assert (learning.start_from, labels.start_from) == (f"{before}-{learner}", f"{before}-{teacher}")
            assert learning.rate == rate
            assert [*stages].index(labels.name) == [*stages].index(learning.name) - 1


def test_facts_count_the_supervised_steps_of_the_final_model() -> None:
    facts = {}
    for stage in plan():
        if isinstance(stage, Stage):
            stage.total_steps, stage.lr = stage.settings.steps, 1e-4
            facts[stage.name] = stage.facts()
            assert stage.key == ("method.pretrain" if "pretrain" in stage.name else "method.round")
    assert [name for name, of in facts.items() if "supervised_steps" not in of] == [n for n in facts if n[-1] == "a"]
    assert all(of.get("supervised_steps", 0) == 0 for of in facts.values())
    assert [facts[name]["labels_alone"] for name in ("pretrain-a", "round-1-a")] == [True, False]


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
    overrides = [
        "method=dmt",
        *(f"method.{stage}.{option}" for stage in ("pretrain", "round") for option in ("batch=4", "steps=2")),
        "method.rates=[0.5, 1.0]",
        "data.size=32",
        "data.labelling.every=3",
        f"data.cache={tmp_path / 'cache'}",
        "evaluation.splits=[]",
        "evaluation.completion=false",
    ]
    return load_config(dataset, "demo", overrides)


def weights_in(folder: Path, stage: str) -> dict[str, Tensor]:
    (path,) = folder.glob(f"stages/*-{stage}/weights.safetensors")
    return read_tensors(path)


def test_a_run_teaches_as_planned(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: dict[str, dict[str, Tensor]] = {}
    labels: dict[str, set[str]] = {}

    def note(stage: Any, context: StageContext) -> None:
        starts[stage.name] = {name: tensor.clone() for name, tensor in context.segmenter.state_dict().items()}
        if isinstance(context.frames.pseudo, Mapped):
            labels[stage.name] = {Path(file.base.filename).parent.name for file in context.frames.pseudo.files}

    begin, run = Stage.begin, Teaching.run
    monkeypatch.setattr(Stage, "begin", lambda stage, context: (note(stage, context), begin(stage, context))[1])
    monkeypatch.setattr(
        Teaching, "run", lambda stage, context, *more: (note(stage, context), run(stage, context, *more))[1]
    )

    whole = tmp_path / "whole"
    train(config, whole, Console(quiet=True))
    source = {"labels-1-a": "pretrain-a", "round-1-b": "pretrain-b", "labels-1-b": "pretrain-b"}
    source |= {"round-1-a": "pretrain-a", "labels-2-b": "round-1-b", "round-2-a": "round-1-a"}
    assert [*starts] == ["pretrain-a", "pretrain-b", *source]
    for name, stage in source.items():
        expected = weights_in(whole, stage)
        assert all(torch.equal(starts[name][key], expected[key]) for key in expected)
    a, b = (weights_in(whole, f"pretrain-{model}")["head.classifier.weight"] for model in "ab")
    assert not torch.equal(a, b)
    expected_labels = {"round-1-b": {"labels-1-a"}, "round-1-a": {"labels-1-b"}, "round-2-a": {"labels-2-b"}}
    assert {name: labels[name] for name in expected_labels} == expected_labels
    assert [path.name for path in (whole / "pseudo").iterdir()] == ["labels-2-b"]
    final, last = read_tensors(whole / "model.safetensors"), weights_in(whole, "round-2-a")
    assert all(torch.equal(final[key], last[key]) for key in last)
