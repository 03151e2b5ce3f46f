"""Which frames and pixels are embedded, and that their features are the network's own."""

import shutil
from itertools import combinations
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
from suture.reports.context import Context
from suture.reports.embeddings_section import FRAMES, covering, embeddings, pixel_features, sample_pixels
from suture.reports.run_facts import read_runs
from suture.training.config import load_config
from suture.training.train import train

PLACES = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.integers(0, 9)), st.sets(st.integers(0, 7), max_size=4), min_size=1, max_size=9
)


@given(PLACES, st.integers(1, 4))
def test_frames_show_every_class_whenever_so_many_can(shown: dict[tuple[str, int], set[int]], count: int) -> None:
    """Against the plain way: every choice of so many frames."""
    chosen = covering(shown, count)
    assert len(set(chosen)) == min(count, len(shown))
    every = set().union(*shown.values())
    they_can = any(set().union(*one) == every for one in combinations(shown.values(), min(count, len(shown))))
    assert (set().union(*(shown[place] for place in chosen)) == every) == they_can


def test_the_frame_that_shows_most_may_be_the_wrong_one() -> None:
    shown = {("a", 0): {0, 1, 2, 3}, ("a", 1): {0, 1, 4}, ("b", 0): {2, 3, 5}, ("b", 1): {0}}
    assert covering(shown, 2) == [("a", 1), ("b", 0)]


def test_frames_are_far_apart() -> None:
    """The rare class is in neighbouring frames, of which one is enough for each video and stretch."""
    shown = {(video, index): {0, 1} if 30 <= index < 40 else {0} for video in "ab" for index in range(60)}
    chosen = covering(shown, 5)
    assert sum(video == "a" for video, _ in chosen) in (2, 3)
    distances = [abs(i - j) for (one, i), (other, j) in combinations(chosen, 2) if one == other]
    assert min(distances) >= 59 / 5
    assert sum(1 in shown[place] for place in chosen) >= 2
    wrong_way = {("c", 0): {0, 1, 2, 3}, **{("a", i): {0, 1, 4} for i in range(60)}, ("a", 60): {2, 3, 5}}
    assert covering(wrong_way, 2) == [("a", 0), ("a", 60)], "also where what to show had to be sought"


@given(st.integers(0, 2**32 - 1))
def test_pixels_are_of_their_class_and_balanced(seed: int) -> None:
    generator = np.random.default_rng(seed)
    masks = [generator.choice([0, 0, 0, 1, 2, IGNORE], (20, 30)).astype(np.uint8) for _ in range(3)]
    pixels = sample_pixels(masks, classes=4)
    again = sample_pixels(masks, classes=4)
    assert all(np.array_equal(getattr(pixels, key), getattr(again, key)) for key in ("frame", "row", "column"))
    assert np.array_equal(np.stack(masks)[pixels.frame, pixels.row, pixels.column], pixels.classes)
    _, counts = np.unique(pixels.classes, return_counts=True)
    assert len(counts) == 3
    assert len(set(counts)) == 1, "there are more than enough of each"
    places = set(zip(pixels.frame.tolist(), pixels.row.tolist(), pixels.column.tolist(), strict=True))
    assert len(places) == len(pixels.classes), "no pixel twice"


@pytest.fixture
def context(runs: Runs, console: Console) -> Context:
    return Context(read_runs([runs.supervised, runs.pgvcl]), frames=False, console=console)


def test_features_are_the_networks_own(context: Context) -> None:
    """Against the plain way: the whole feature map brought to the image's size, then read at the pixels."""
    dataset, model = context.dataset, context.models[1]
    assert dataset is not None
    places = [("case01a", 0), ("case02", 6)]
    masks = [np.zeros(model.size, np.uint8) for _ in places]
    masks[1][5:9, 7:20] = 1
    pixels = sample_pixels(masks, classes=2)
    found = pixel_features(model.segmenter, dataset, places, model, pixels)
    for number, (name, index) in enumerate(places):
        image = torch.from_numpy(read_scene(dataset[name], index, model.size)).permute(2, 0, 1)[None].float() / 255
        with torch.no_grad():
            features = model.segmenter.features(image)
        whole = F.interpolate(features, scale_factor=model.segmenter.stride, mode="bilinear", align_corners=False)
        here = pixels.frame == number
        expected = F.normalize(whole[0][:, pixels.row[here], pixels.column[here]].T, dim=1)
        torch.testing.assert_close(torch.from_numpy(found[here]), expected, atol=1e-5, rtol=1e-4)


def test_before_and_after(context: Context) -> None:
    found = embeddings(context)
    assert found is not None
    assert len(found.places) == FRAMES
    assert found.new
    assert {video for video, _ in found.places} <= {"case03", "case04"}, "nothing that was learnt from"
    supervised, pgvcl = found.runs
    assert (supervised.before.title, supervised.after.title) == ("starting weights", "final model")
    assert (pgvcl.before.title, pgvcl.after.title) == ("before contrast (after pretrain)", "after contrast")
    for one in (supervised, pgvcl):
        assert one.before.points.shape == (len(found.pixels.classes), 2)
        assert not np.allclose(one.before.points, one.after.points)
        assert one.after.separation is not None
        assert -1 <= one.after.separation <= 1
    again = embeddings(Context(context.runs[1:], frames=False, console=context.console))
    assert again is not None
    assert np.array_equal(again.runs[0].after.points, pgvcl.after.points), "the same every time"


def test_propagation_is_compared_as_a_contrast_is(runs: Runs, tmp_path: Path, console: Console) -> None:
    stages = ("pretrain", "propagation", "finetune")
    short = [f"method.{stage}={{steps: 2, epochs: null, batch: 2}}" for stage in stages]
    settings = ["data.size=32", "data.labelling.every=6", "method=pixpro", *short]
    data = runs.supervised.parents[1] / "data"
    train(load_config(data, "demo", [*settings, "method.propagation.hidden=16"]), tmp_path / "pixpro", console)
    found = embeddings(Context(read_runs([tmp_path / "pixpro"]), frames=False, console=console))
    assert found is not None
    (pixpro,) = found.runs
    assert pixpro.about == "before and after its propagation stage"
    assert pixpro.before.title == "before propagation (after pretrain)"
    assert pixpro.after.title == "after propagation"
    assert pixpro.before.points.shape == (len(found.pixels.classes), 2)
    assert not np.allclose(pixpro.before.points, pixpro.after.points)


def test_without_masks_of_new_videos_it_is_labelled_frames(runs: Runs, console: Console) -> None:
    context = Context(read_runs([runs.unmasked]), frames=False, console=console)
    found = embeddings(context)
    assert found is not None
    assert not found.new
    run = context.first
    assert set(found.places) <= {(name, index) for name in run.videos("train") for index in run.labelled(name)}


def test_all_frames_are_looked_at_where_some_do_not_show_every_class(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = embeddings(context)
    monkeypatch.setattr("suture.reports.embeddings_section._LOOKED_AT", 1)
    again = embeddings(context)
    assert every is not None
    assert again is not None
    assert len(again.places) == FRAMES
    assert again.missing == every.missing


def test_classes_are_missing_that_have_no_dot(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of those that no frame shows enough of to be chosen for it, some pixels may be drawn."""
    monkeypatch.setattr("suture.reports.embeddings_section._LEAST_PIXELS", 10**6)
    found = embeddings(context)
    assert found is not None
    drawn = {context.classes[number] for number in found.pixels.classes.tolist()}
    assert drawn
    assert set(found.missing) == set(context.classes) - drawn


def test_weights_that_are_gone(runs: Runs, tmp_path: Path, console: Console) -> None:
    run = shutil.copytree(runs.pgvcl, tmp_path / "tidied")
    for file in run.glob("stages/*/weights.safetensors"):
        file.unlink()
    found = embeddings(Context(read_runs([run]), frames=False, console=console))
    assert found is not None
    assert found.runs[0].before.title == "starting weights"
