"""Choice of the embedded frames and pixels, and their features."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
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

Open = Callable[..., ReportContext]


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


def test_features_equal_the_upsampled_feature_map(runs: Runs, context_of: Open) -> None:
    context = context_of(runs.pgvcl)
    dataset, model = context.dataset, context.models[0]
    assert dataset is not None
    keys = [("case01a", 0), ("case02", 6)]
    masks = [np.zeros(model.size, np.uint8) for _ in keys]
    masks[1][5:9, 7:20] = 1
    pixels = sample_pixels(masks, classes=2)
    result = pixel_features(model.segmenter, dataset, keys, model, pixels)
    for number, (name, index) in enumerate(keys):
        image = torch.from_numpy(read_scene(dataset[name], index, model.size)).permute(2, 0, 1)[None].float() / 255
        with torch.no_grad():
            features = model.segmenter.features(image)
        whole = F.interpolate(features, scale_factor=model.segmenter.stride, mode="bilinear", align_corners=False)
        here = pixels.places[:, 0] == number
        _, rows, columns = pixels.places[here].T
        expected = F.normalize(whole[0][:, rows, columns].T, dim=1)
        torch.testing.assert_close(torch.from_numpy(result[here]), expected, atol=1e-5, rtol=1e-4)


def embed(context: ReportContext) -> Embeddings:
    embeddings = compute_embeddings(context)
    assert embeddings is not None
    return embeddings


def test_before_and_after(runs: Runs, context_of: Open) -> None:
    embeddings = embed(context_of(runs.supervised, runs.pgvcl))
    assert len(embeddings.keys) == MAX_FRAMES
    assert embeddings.is_new
    assert {video for video, _ in embeddings.keys} <= {"case03", "case04"}, "no training video"
    assert [[side.title for side in sides] for sides in embeddings.runs.values()] == [
        ["starting weights", "final model"],
        ["before contrast (after pretrain)", "after contrast"],
    ]
    for before, after in embeddings.runs.values():
        assert before.points.shape == (len(embeddings.pixels.classes), 2)
        assert not np.allclose(before.points, after.points)
        assert after.separation is not None
        assert -1 <= after.separation <= 1
    again = embed(context_of(runs.pgvcl))
    assert np.array_equal(again.runs[0][1].points, embeddings.runs[1][1].points), "the same every time"


def test_labelled_frames_and_starting_weights_are_the_last_resort(
    runs: Runs, tmp_path: Path, context_of: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("suture.reports.embeddings_section.MAX_FRAMES", 1)
    run = shutil.copytree(runs.unmasked, tmp_path / "tidied")
    for file in run.glob("stages/*/weights.safetensors"):
        file.unlink()
    context = context_of(run)
    embeddings = embed(context)
    assert embeddings.runs[0][0].title == "starting weights"
    assert not embeddings.is_new
    ((name, index),) = embeddings.keys
    assert index in context.first.labelled[name]
