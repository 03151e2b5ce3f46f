"""The side-by-side video: it plays, shows every run, and stays readable."""

import io

import av
import numpy as np
from rich.console import Console
from tiny_runs import Runs

from suture.data.classes import IGNORE
from suture.reports.context import Context
from suture.reports.run_facts import read_runs
from suture.reports.side_by_side import _SIDE, Sheet, encode, painted, side_by_side_video, text

COLORS = np.array([[200, 0, 0], [0, 0, 200]], np.uint8)


def test_video_of_two_runs(runs: Runs, console: Console) -> None:
    context = Context(read_runs([runs.supervised, runs.pgvcl]), frames=True, console=console)
    found = side_by_side_video(context)
    assert found is not None
    assert (found.video, found.frames, found.panels) == ("case04", 14, ["frame", "truth", "supervised", "pgvcl"])
    with av.open(io.BytesIO(found.content), "r") as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert (stream.width, stream.height) == found.size
        assert stream.width > 4 * _SIDE, "names find room above frames that are small themselves"
        assert stream.average_rate == 14 / 4, "four seconds at least"
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    assert len(pictures) == 14
    assert np.abs(pictures[0].astype(int) - pictures[-1]).max() > 50, "something happens"


def test_frames_survive_the_encoding() -> None:
    grey = [np.full((64, 96, 3), 20 * level, np.uint8) for level in range(6)]
    with av.open(io.BytesIO(encode(grey, 3.0)), "r") as container:
        levels = [frame.to_ndarray(format="rgb24").mean() for frame in container.decode(video=0)]
    np.testing.assert_allclose(levels, [20 * level for level in range(6)], atol=4)


def test_many_runs_go_below_each_other() -> None:
    titles = ["frame", "truth", *(f"a-method-with-a-very-long-name-{number}" for number in range(7))]
    sheet = Sheet(titles, (41, 33), ["tissue", "tool"], COLORS)
    panels = [np.full((41, 33, 3), 10 * number + 60, np.uint8) for number in range(len(titles))]
    page = sheet.page(panels, "case01, frame 3")
    assert page.shape == (sheet.height, sheet.width, 3)
    assert sheet.height % 2 == 0
    assert sheet.width % 2 == 0
    for number in range(len(titles)):
        assert (page == 10 * number + 60).all(2).sum() >= 41 * 33, "no panel covers another"
    changed = (page != sheet.page(panels, "case02, frame 8")).any((1, 2))
    assert changed.any()
    assert not changed[30:].any(), "the caption is at the top, where no player has its controls"


def test_the_legend_fills_the_cells_that_are_left_over() -> None:
    five, six = ([f"panel {number}" for number in range(count)] for count in (5, 6))
    beside, below = (Sheet(titles, (240, 320), ["tissue", "tool"], COLORS) for titles in (five, six))
    assert (beside.columns, beside.width) == (below.columns, below.width)
    assert beside.height < below.height
    page = beside.page([np.full((240, 320, 3), 90, np.uint8)] * 5, "case01, frame 3")
    cell = page[page.shape[0] // 2 :, -320:]
    assert all((cell == color).all(2).any() for color in COLORS), "both classes stand there"
    many = [f"a class with a long name {number}" for number in range(40)]
    colors = np.full((40, 3), 100, np.uint8)
    assert Sheet(five, (240, 320), many, colors).height > beside.height, "too many for a cell go below"


def test_a_black_class_hides_nothing() -> None:
    photo = np.full((5, 5, 3), 100, np.uint8)
    ids = np.zeros((5, 5), np.uint8)
    ids[1:4, 1:4] = 1
    over = painted(photo, ids, np.array([[0, 0, 0], [0, 0, 200]], np.uint8))
    assert (over[ids == 0] == 100).all()
    assert over[2, 2].tolist() == [50, 50, 150]
    over[2, 2] = (0, 0, 200)
    assert (over[ids == 1] == (0, 0, 200)).all(), "the outline is whole"


def test_paint_and_text() -> None:
    photo = np.full((4, 6, 3), 100, np.uint8)
    ids = np.array([[0, 0, 1, 1, 1, IGNORE]] * 4, np.uint8)
    over = painted(photo, ids, COLORS)
    assert (over[:, 5] == 100).all(), "nothing is said there"
    assert (over[:, 1] == COLORS[0]).all(), "the outline"
    assert over[0, 3].tolist() == [50, 50, 150]
    assert text("", 30, 20).shape == (20, 30, 3)
    assert text("wide " * 50, 60, 20).shape == (20, 60, 3)
