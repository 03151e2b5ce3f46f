"""The drawing of shots: its curve, and the frames beside the cuts."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from test_shots import scene, still, video_of

from suture.data.draw_shots import draw_shots
from suture.data.images import read_image
from suture.data.shots import Shots, find_shots


def test_the_curve_begins_anew_behind_excluded_frames(tmp_path: Path) -> None:
    frames = [frame for i in range(14) for frame in still(scene(i), 6)]
    video = video_of(frames, tmp_path, excluded=range(20, 26))
    for shown in (video, replace(video, take_every=4)):
        lines = draw_shots(shown, find_shots(shown)).axes[0].lines
        assert [int(np.isnan(line.get_ydata()).sum()) for line in lines[:2]] == [1, 1]
    for shots in (find_shots(video), Shots((), (), np.zeros(0), np.zeros(0))):
        draw_shots(video, shots, labelled=[0, 40]).savefig(tmp_path / "shots.png", dpi=40)
        assert read_image(tmp_path / "shots.png").std() > 5


def test_shows_frames_from_all_over_and_both_sides_of_the_cuts(tmp_path: Path) -> None:
    video = video_of([frame for i in range(2) for frame in still(scene(i), 30)], tmp_path)
    titles = [axes.get_title() for axes in draw_shots(video, find_shots(video)).axes[1:]]
    assert len(titles) == 24
    assert titles[titles.index("cut at 30") - 1] == "29"
    places = [int(title.removeprefix("cut at ")) for title in titles]
    assert max(after - before for before, after in pairwise([0, *places, 59])) <= 4
    short = video_of(still(scene(0), 3), tmp_path)
    assert len(draw_shots(short, find_shots(short)).axes) == 1 + 3
