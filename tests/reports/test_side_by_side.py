"""The side-by-side video: it plays, shows every run, and stays readable."""

import io

import av
import numpy as np
import pytest
from rich.console import Console
from tiny_runs import Runs

from suture.data.classes import ClassTable
from suture.reports.report_context import ReportContext
from suture.reports.reported_run import read_runs
from suture.reports.side_by_side import PANEL_SIDE, Sheet, draw_text, encode, side_by_side_video

CLASSES = ClassTable(("tissue", "tool"), ((200, 0, 0), (0, 0, 200)), {})


def test_video_of_two_runs(runs: Runs, console: Console) -> None:
    context = ReportContext(read_runs([runs.supervised, runs.pgvcl]), frames=True, console=console)
    video = side_by_side_video(context)
    assert video is not None
    assert video.caption == "case04, frames 0 to 13: frame, truth, supervised, pgvcl"
    with av.open(io.BytesIO(video.content), "r") as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert (stream.width, stream.height) == video.size
        assert stream.width > 4 * PANEL_SIDE, "small frames are enlarged, so that titles fit above them"
        assert stream.average_rate == 14 / 4, "four seconds at least"
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    assert len(pictures) == 14
    assert np.abs(pictures[0].astype(int) - pictures[-1]).max() > 50, "something happens"


def test_frames_survive_the_encoding() -> None:
    grey = [np.full((64, 96, 3), 20 * level, np.uint8) for level in range(6)]
    with av.open(io.BytesIO(encode(grey, 3.0)), "r") as container:
        levels = [frame.to_ndarray(format="rgb24").mean() for frame in container.decode(video=0)]
    np.testing.assert_allclose(levels, [20 * level for level in range(6)], atol=4)


@pytest.mark.parametrize(("count", "size"), [(9, (41, 33)), (5, (240, 320))])
def test_sheet_shows_every_panel_and_class(count: int, size: tuple[int, int]) -> None:
    titles = ["frame", "truth", *(f"a-method-with-a-very-long-name-{number}" for number in range(count - 2))]
    sheet = Sheet(titles, size, CLASSES)
    panels = [np.full((*size, 3), 10 * number + 60, np.uint8) for number in range(count)]
    page = sheet.page(panels, "case01, frame 3")
    assert not page.shape[0] % 2
    assert not page.shape[1] % 2
    for number in range(count):
        assert (page == 10 * number + 60).all(2).sum() >= size[0] * size[1], "no panel covers another"
    assert all((page == color).all(2).any() for color in CLASSES.colors)
    changed = (page != sheet.page(panels, "case02, frame 8")).any((1, 2))
    assert changed.any()
    assert not changed[30:].any(), "the caption is at the top, above a player's controls"


def test_text_is_cut_off_at_the_width() -> None:
    assert draw_text("", 30).shape[1] == 30
    assert draw_text("wide " * 50, 60).shape[1] == 60
