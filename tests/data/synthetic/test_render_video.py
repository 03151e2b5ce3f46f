"""The generator's plan and its pixels."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from pydantic import ValidationError

from suture.data.synthetic.render_video import render_video
from suture.data.synthetic.scenario import (
    CLASSES,
    EVENTS,
    GAUZE,
    NEEDLE,
    OUTSIDE,
    THREAD,
    TISSUE,
    SyntheticSettings,
    plan_videos,
    split_cases,
)

SMALL = SyntheticSettings(cases=3, frames=16, shots=2, width=72, height=64)


def digest(settings: SyntheticSettings) -> str:
    total = hashlib.sha256()
    for video in plan_videos(settings):
        for rgb, mask in render_video(video):
            total.update(rgb.tobytes())
            total.update(mask.tobytes())
    return total.hexdigest()


def test_same_settings_give_the_same_bytes_in_another_process() -> None:
    here = digest(SMALL)
    script = f"""
import sys; sys.path.insert(0, {str(__file__.rsplit("/", 1)[0])!r})
from test_render_video import SMALL, digest
print(digest(SMALL))
"""
    there = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here
    assert digest(SMALL.model_copy(update={"seed": 1})) != here


def test_single_frames_are_those_of_the_whole_video() -> None:
    video = plan_videos(SMALL)[1]
    whole = list(render_video(video))
    for frame, (rgb, mask) in zip((3, 11), render_video(video, [3, 11]), strict=True):
        assert np.array_equal(rgb, whole[frame][0])
        assert np.array_equal(mask, whole[frame][1])


@pytest.mark.parametrize(("width", "height"), [(321, 243), (48, 97), (32, 32)])
def test_any_size(width: int, height: int) -> None:
    for video in plan_videos(SyntheticSettings(cases=2, frames=4, shots=1, width=width, height=height)):
        for rgb, mask in render_video(video):
            assert rgb.shape == (height, width, 3)
            assert mask.shape == (height, width)
            assert rgb.dtype == mask.dtype == np.uint8


def test_all_classes_occur_in_train_and_test_with_a_long_tail() -> None:
    settings = SyntheticSettings(width=128, height=128)
    split = split_cases(settings.cases)
    known = {c.value for c in CLASSES} | {OUTSIDE}
    counts = {part: np.zeros(256, int) for part in split}
    videos_with = np.zeros(256, int)
    for video in plan_videos(settings):
        part = next(part for part, cases in split.items() if video.case in cases)
        masks = np.stack([mask for _, mask in render_video(video, range(0, settings.frames, 10))])
        count = np.bincount(masks.ravel(), minlength=256)
        counts[part] += count
        videos_with += count > 0
        assert set(np.flatnonzero(count)) <= known
    for c in CLASSES:
        assert counts["train"][c.value] > 0, c.name
        assert counts["test"][c.value] > 0, c.name
    assert counts["train"][NEEDLE] < counts["train"][THREAD] < 0.05 * counts["train"][TISSUE]
    assert 2 <= videos_with[GAUZE] < settings.cases / 2


@pytest.mark.parametrize("fps", [1, 5, 25])
def test_cuts_are_where_the_plan_says(fps: float) -> None:
    settings = SyntheticSettings(cases=3, frames=40, width=64, height=64, fps=fps)
    at_cuts: list[float] = []
    elsewhere: list[float] = []
    for video in plan_videos(settings):
        assert len(video.cuts) == settings.shots - 1 + len(video.excluded)
        frames = [rgb.astype(np.float32) for rgb, _ in render_video(video)]
        for i in range(1, len(frames)):
            (at_cuts if i in video.cuts else elsewhere).append(float(np.abs(frames[i] - frames[i - 1]).mean()))
    assert np.median(at_cuts) > 3 * np.median(elsewhere)
    assert min(at_cuts) > np.quantile(elsewhere, 0.9)


def test_motion_per_frame_grows_with_the_time_between_frames() -> None:
    def motion(fps: float) -> float:
        video = plan_videos(SyntheticSettings(cases=1, frames=12, shots=1, width=96, height=96, fps=fps))[0]
        frames = np.stack([rgb for rgb, _ in render_video(video)]).astype(np.float32)
        return float(np.median(np.abs(np.diff(frames, axis=0)).mean((1, 2, 3))))

    assert motion(1) > motion(5) > motion(25)


def test_the_artefacts_of_real_recordings() -> None:
    videos = plan_videos(SyntheticSettings())
    assert [v.id for v in videos if v.case == "case01"] == ["case01a", "case01b"]
    assert sum(v.bar > 0 for v in videos) == 1
    assert sum(bool(v.excluded) for v in videos) == 1
    round_ones = [v for v in videos if v.view is not None and v.view.circle is not None]
    assert 2 <= len(round_ones) < len(videos) / 2
    assert {shot.event for v in videos for shot in v.shots} == set(EVENTS)


def test_nothing_of_the_scene_lies_outside_the_view() -> None:
    for video in plan_videos(SyntheticSettings(cases=5, frames=8, shots=2, width=96, height=80)):
        excluded = {f for first, last in video.excluded for f in range(first, last + 1)}
        inside = video.view.mask(96, 80) if video.view else np.ones((80, 96), bool)
        for i, (rgb, mask) in enumerate(render_video(video)):
            assert np.array_equal(mask == OUTSIDE, np.full_like(inside, True) if i in excluded else ~inside)
            if video.view is not None and video.view.circle is not None and not video.bar:
                assert rgb[~inside].mean() < 12 < rgb[inside].mean()


@pytest.mark.parametrize("cases", range(1, 14))
def test_split_takes_every_case_once_and_always_trains(cases: int) -> None:
    split = split_cases(cases)
    assert [case for part in split.values() for case in part] == [f"case{i + 1:02d}" for i in range(cases)]
    assert split["train"]
    assert bool(split["test"]) == (cases > 1)
    assert len(split["val"]) == (cases > 2)


def test_too_few_frames_for_the_shots_are_refused() -> None:
    with pytest.raises(ValidationError, match="frames is 8, expected at least 4 for each of the 3 shots"):
        SyntheticSettings(frames=8, shots=3)
