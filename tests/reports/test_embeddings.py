"""Choice of the embedded frames and pixels, and their features."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tiny_runs import Runs

from suture.data.classes import IGNORE
from suture.data.read_scenes import read_scene
from suture.reports.embeddings_section import (
    MAX_FRAMES,
    Embeddings,
    compute_embeddings,
    pixel_features,
    sample_pixels,
)
from suture.reports.report_context import ReportContext
from suture.reports.reported_run import read_runs
from suture.training.config import load_config
from suture.training.train import train


@given(st.integers(0, 2**32 - 1))
def test_pixels_are_of_their_class_and_balanced(seed: int) -> None:
    generator = np.random.default_rng(seed)
    masks = [generator.choice([0, 0, 0, 1, 2, IGNORE], (20, 30)).astype(np.uint8) for _ in range(3)]
    pixels = sample_pixels(masks, classes=4)
    again = sample_pixels(masks, classes=4)
    assert np.array_equal(pixels.places, again.places)
    assert np.array_equal(np.stack(masks)[tuple(pixels.places.T)], pixels.classes)
    _, counts = np.unique(pixels.classes, return_counts=True)
    assert len(counts) == 3
    assert len(set(counts)) == 1, "there are more than enough of each"
    assert len(set(map(tuple, pixels.places.tolist()))) == len(pixels.classes), "no pixel twice"


@pytest.fixture
def context(runs: Runs, console: Console) -> ReportContext:
    return ReportContext(read_runs([runs.supervised, runs.pgvcl]), frames=False, console=console)


def test_features_equal_the_upsampled_feature_map(context: ReportContext) -> None:
    dataset, model = context.dataset, context.models[1]
    assert dataset is not None
    keys = [("case01a", 0), ("case02", 6)]
    masks = [np.zeros(model.size, np.uint8) for _ in keys]
    masks[1][5:9, 7:20] = 1
    pixels = sample_pixels(masks, classes=2)
    found = pixel_features(model.segmenter, dataset, keys, model, pixels)
    for number, (name, index) in enumerate(keys):
        image = torch.from_numpy(read_scene(dataset[name], index, model.size)).permute(2, 0, 1)[None].float() / 255
        with torch.no_grad():
            features = model.segmenter.features(image)
        whole = F.interpolate(features, scale_factor=model.segmenter.stride, mode="bilinear", align_corners=False)
        here = pixels.places[:, 0] == number
        _, rows, columns = pixels.places[here].T
        expected = F.normalize(whole[0][:, rows, columns].T, dim=1)
        torch.testing.assert_close(torch.from_numpy(found[here]), expected, atol=1e-5, rtol=1e-4)


def embed(context: ReportContext) -> Embeddings:
    embeddings = compute_embeddings(context)
    assert embeddings is not None
    return embeddings


def test_before_and_after(context: ReportContext) -> None:
    embeddings = embed(context)
    assert len(embeddings.keys) == MAX_FRAMES
    assert embeddings.is_new
    assert {video for video, _ in embeddings.keys} <= {"case03", "case04"}, "no training video"
    supervised, pgvcl = embeddings.runs
    assert (supervised.before.title, supervised.after.title) == ("starting weights", "final model")
    assert (pgvcl.before.title, pgvcl.after.title) == ("before contrast (after pretrain)", "after contrast")
    for one in (supervised, pgvcl):
        assert one.before.points.shape == (len(embeddings.pixels.classes), 2)
        assert not np.allclose(one.before.points, one.after.points)
        assert one.after.separation is not None
        assert -1 <= one.after.separation <= 1
    again = embed(ReportContext(context.runs[1:], frames=False, console=context.console))
    assert np.array_equal(again.runs[0].after.points, pgvcl.after.points), "the same every time"


def test_propagation_is_compared_as_a_contrast_is(runs: Runs, tmp_path: Path, console: Console) -> None:
    stages = ("pretrain", "propagation", "finetune")
    short = [f"method.{stage}={{steps: 2, epochs: null, batch: 2}}" for stage in stages]
    settings = ["data.size=32", "data.labelling.every=6", "method=pixpro", *short]
    train(load_config(runs.data, "demo", [*settings, "method.propagation.hidden=16"]), tmp_path / "pixpro", console)
    (pixpro,) = embed(ReportContext(read_runs([tmp_path / "pixpro"]), frames=False, console=console)).runs
    assert pixpro.about == "before and after its propagation stage"
    assert pixpro.before.title == "before propagation (after pretrain)"
    assert pixpro.after.title == "after propagation"
    assert not np.allclose(pixpro.before.points, pixpro.after.points)


def test_labelled_frames_are_used_without_masks_of_new_videos(runs: Runs, console: Console) -> None:
    context = ReportContext(read_runs([runs.unmasked]), frames=False, console=console)
    embeddings = embed(context)
    assert not embeddings.is_new
    labelled = context.first.labelled
    assert set(embeddings.keys) <= {(name, index) for name, indices in labelled.items() for index in indices}


def test_classes_without_a_dot_are_missing(context: ReportContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suture.reports.embeddings_section.MAX_FRAMES", 1)
    embeddings = embed(context)
    assert len(embeddings.keys) == 1
    classes = context.first.classes
    assert embeddings.missing == [name for n, name in enumerate(classes) if n not in embeddings.classes]


def test_removed_weights_of_stages(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = shutil.copytree(runs.pgvcl, tmp_path / "tidied")
    for file in run.glob("stages/*/weights.safetensors"):
        file.unlink()
    embeddings = embed(ReportContext(read_runs([run]), frames=False, console=console))
    assert embeddings.runs[0].before.title == "starting weights"
