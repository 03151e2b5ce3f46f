"""Clips: they play, show every run, and stay readable."""

import io
from collections.abc import Callable

import av
import numpy as np
import pytest
from tiny_runs import Runs

from suture.data.classes import ClassTable
from suture.reports.clips_section import LINE_HEIGHT, clips_section, compose, draw_text, encode
from suture.reports.report_context import ReportContext

CLASSES = ClassTable(("tissue", "tool"), ((200, 0, 0), (0, 0, 200)), {})


def test_clip_of_two_runs(runs: Runs, context_of: Callable[..., ReportContext]) -> None:
    (clip,) = clips_section(context_of(runs.supervised, runs.pgvcl))
    assert clip.caption == "case04, frames 0 to 13: frame, truth, supervised, pgvcl"
    with av.open(io.BytesIO(clip.content), "r") as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert stream.average_rate == 5, "that of the video"
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    assert len(pictures) == 14
    assert np.abs(pictures[0].astype(int) - pictures[-1]).max() > 50, "something happens"


def test_frames_survive_the_encoding() -> None:
    grey = [np.full((64, 96, 3), 20 * level, np.uint8) for level in range(6)]
    with av.open(io.BytesIO(encode(grey, 3.0)), "r") as container:
        levels = [frame.to_ndarray(format="rgb24").mean() for frame in container.decode(video=0)]
    np.testing.assert_allclose(levels, [20 * level for level in range(6)], atol=4)


@pytest.mark.parametrize(("count", "size"), [(9, (41, 33)), (5, (240, 320))])
def test_picture_shows_every_panel_and_class(count: int, size: tuple[int, int]) -> None:
    panels = {f"a-method-with-a-very-long-name-{n}": np.full((*size, 3), 10 * n + 60, np.uint8) for n in range(count)}
    page = compose(panels, CLASSES)
    assert not page.shape[0] % 2
    assert not page.shape[1] % 2
    for number in range(count):
        assert (page == 10 * number + 60).all(2).sum() >= size[0] * size[1], "no panel covers another"
    assert all((page == color).all(2).any() for color in CLASSES.colors)


def test_text_is_cut_off_at_the_width() -> None:
    assert draw_text("wide " * 50, 60).shape == (LINE_HEIGHT, 60, 3)
