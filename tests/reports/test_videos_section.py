"""Videos without truth: predicted frames, their statistics, and suggestions."""

from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tiny_runs import Runs

from suture.data.read_scenes import read_scene
from suture.reports.report_context import ReportContext, read_footage, rename_duplicates
from suture.reports.reported_run import read_runs
from suture.reports.videos_section import frames_in_pairs, predict_footage, suggest_frames


@given(st.integers(1, 400), st.integers(2, 100))
def test_pairs_cover_the_whole_video(length: int, most: int) -> None:
    chosen = frames_in_pairs(range(length), most)
    assert len(chosen) <= most
    assert chosen == sorted(set(chosen))
    if length <= most:
        assert chosen == list(range(length))
    elif most >= 8:
        assert chosen[0] == 0
        assert max(np.diff([*chosen, length])) <= 4 * length / most + 2, "no long stretch is left out"
        assert any(b - a == 1 for a, b in pairwise(chosen)), "steadiness needs neighbours"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.integers(1, 8))
def test_suggestions_are_apart_and_least_confident(values: list[float], count: int) -> None:
    confidence = {("a", index): value for index, value in enumerate(values)}
    chosen = suggest_frames(confidence, {"a": len(values)}, count)
    assert 1 <= len(chosen) <= count
    assert min(values) in chosen.values()
    assert list(chosen.values()) == sorted(chosen.values())
    indices = sorted(index for _, index in chosen)
    assert all(b - a >= 5 for a, b in pairwise(indices))


def test_statistics_equal_those_of_the_probabilities(runs: Runs, footage: Path, console: Console) -> None:
    context = ReportContext(
        read_runs([runs.pgvcl]), frames=True, console=console, further_videos=read_footage([footage])
    )
    footage_result = predict_footage(context)
    assert footage_result is not None
    ((name, by_run),) = footage_result.statistics.items()
    statistics = by_run[0]
    video = footage_result.videos[name]
    assert statistics.indices == video.usable
    np.testing.assert_allclose(statistics.areas.sum(1), 1, rtol=1e-5)
    model = context.models[0]
    index = statistics.indices[3]
    image = torch.from_numpy(read_scene(video, index, model.size)).permute(2, 0, 1)[None].float() / 255
    with torch.no_grad():
        shares = model.segmenter(image)[0].softmax(0)
    inside = video.view.crop(video.view.mask(*video.size)).astype(np.uint8)
    inside = cv2.resize(inside, model.size[::-1], interpolation=cv2.INTER_NEAREST_EXACT).astype(bool)
    assert abs(float(shares.max(0).values[inside].mean()) - statistics.confidence[3]) < 1e-4
    entropy = -(shares * shares.log()).sum(0)[inside].mean() / np.log(len(shares))
    assert abs(float(entropy) - statistics.entropy[3]) < 1e-4
    assert np.isnan(statistics.consistency[0])
    assert np.isfinite(statistics.consistency[1:]).all()
    assert {index for _, index in footage_result.suggested} <= set(video.usable)


def test_duplicate_names_are_numbered(footage: Path) -> None:
    video = read_footage([footage])[0]
    names = [one.id for one in rename_duplicates([video, video, video], {"case04"})]
    assert names == ["case04 (2)", "case04 (3)", "case04 (4)"]
