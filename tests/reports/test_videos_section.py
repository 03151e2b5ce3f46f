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
from suture.reports.report_context import ReportContext, read_footage
from suture.reports.reported_run import read_runs
from suture.reports.videos_section import frames_in_pairs, predict_footage


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


def test_statistics_equal_those_of_the_probabilities(runs: Runs, footage: Path, console: Console) -> None:
    context = ReportContext(
        read_runs([runs.pgvcl]), frames=True, console=console, further_videos=read_footage([footage])
    )
    ((name, by_run),) = predict_footage(context).items()
    statistics = by_run[0]
    (video,) = context.footage
    assert video.id == name
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
