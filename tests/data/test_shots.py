"""Cuts are found in generated video at 1, 5 and 25 frames per second, and hard negatives are not taken for cuts."""

import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from suture.core.io import locked
from suture.data.classes import ClassTable
from suture.data.dataset import Dataset, Frame, Video
from suture.data.datasets import load_dataset
from suture.data.images import read_image
from suture.data.shots import Shots, ShotSettings, draw_shots, find_shots, shots_of_frames, stored_shots
from suture.data.store import FrameStore
from suture.data.synthetic.render_video import render_video
from suture.data.synthetic.scenario import SyntheticSettings, SyntheticVideo, plan_videos
from suture.data.view import View

FrameList = list[np.ndarray]


def scene(seed: int, width: int = 96, height: int = 72) -> np.ndarray:
    """A picture of soft patches."""
    patches = np.random.default_rng(seed).integers(30, 200, (7, 7, 3)).astype(np.uint8)
    return cv2.resize(patches, (width, height), interpolation=cv2.INTER_CUBIC)


def stretch(picture: np.ndarray, length: int, seed: int = 0) -> FrameList:
    """A still shot, with a camera's noise."""
    generator = np.random.default_rng(seed)
    return [np.clip(picture + generator.normal(0, 3, picture.shape), 0, 255).astype(np.uint8) for _ in range(length)]


def starts(frames: Iterable[np.ndarray], numbers: Iterable[int] | None = None) -> tuple[int, ...]:
    frames = list(frames)
    return shots_of_frames(frames, list(numbers) if numbers is not None else range(len(frames))).starts


def detect(video: SyntheticVideo, frames: FrameList) -> tuple[set[int], set[int]]:
    """The frames at which shots are found to start, and those at which they do."""
    excluded = {frame for first, last in video.excluded for frame in range(first, last + 1)}
    usable = [index for index in range(len(frames)) if index not in excluded]
    inside = video.view.mask(96, 96) if video.view else None
    shots = shots_of_frames([frames[i] for i in usable], [video.numbers[i] for i in usable], usable, inside)
    return set(shots.starts[1:]), {min(index for index in usable if index >= cut) for cut in video.cuts}


@pytest.mark.parametrize("fps", [1, 5, 25])
def test_precision_and_recall_on_generated_video(fps: int) -> None:
    right = found = there = disturbed = 0
    for gaps in (False, True):
        settings = SyntheticSettings(seed=7, cases=3, frames=50, shots=4, fps=fps, width=96, height=96, gaps=gaps)
        for video in plan_videos(settings):
            got, true = detect(video, [frame for frame, _ in render_video(video)])
            right, found, there = right + len(got & true), found + len(got), there + len(true)
            disturbed += len({event.kind for event in video.events})
    assert there >= 24
    assert disturbed >= 20  # smoke, blood, light, blur, sweeps, instruments, gaps
    assert right / found >= 0.95
    assert right / there >= 0.95


@given(st.lists(st.integers(2, 12), min_size=1, max_size=5), st.integers(0, 10**6))
def test_every_shot_is_a_stretch_and_all_frames_have_one(lengths: list[int], seed: int) -> None:
    frames = [frame for i, length in enumerate(lengths) for frame in stretch(scene(seed + i), length, seed)]
    shots = shots_of_frames(frames, range(len(frames)))
    assert shots.starts == tuple(np.cumsum([0, *lengths[:-1]]).tolist())
    assert [index for shot in range(len(shots)) for index in shots.members(shot)] == list(range(len(frames)))
    assert all(index in shots.members(shots.of(index)) for index in range(len(frames)))
    assert len(shots.curve) == len(shots.threshold) == len(frames) - 1


def test_a_lamp_that_is_turned_up_is_no_cut() -> None:
    picture = scene(1)
    assert starts(
        [*stretch(picture, 10), *stretch(np.clip(picture * 1.25, 0, 255), 10), *stretch(picture * 0.5, 10)]
    ) == (0,)


def test_smoke_is_no_cut() -> None:
    picture = scene(2).astype(np.float32)
    assert starts([*stretch(picture, 10), *stretch(0.4 * picture + 0.6 * 190, 10), *stretch(picture, 10)]) == (0,)


def test_an_instrument_or_blood_is_no_cut() -> None:
    picture, with_tool, bloody = scene(3), scene(3), scene(3)
    cv2.line(with_tool, (96, 72), (45, 30), (150, 150, 155), 14)
    cv2.circle(bloody, (30, 40), 18, (90, 5, 5), -1)
    assert starts([*stretch(picture, 10), *stretch(with_tool, 10), *stretch(bloody, 10)]) == (0,)


def test_one_odd_frame_is_no_cut() -> None:
    still = stretch(scene(4), 20)
    for odd in (scene(5), np.full_like(scene(5), 255), np.zeros_like(scene(5))):
        assert starts([*still[:10], odd, *still[10:]]) == (0,)


def test_shots_of_one_frame() -> None:
    assert starts([*stretch(scene(0), 5), scene(1), *stretch(scene(2), 5)]) == (0, 5, 6)


def test_a_restless_video_needs_more() -> None:
    generator = np.random.default_rng(0)
    restless = [np.roll(scene(6), tuple(generator.integers(-20, 20, 2)), (0, 1)) for _ in range(40)]
    assert len(starts(restless)) <= 3


def test_gaps_in_the_numbers() -> None:
    still = stretch(scene(7), 20)
    steady = list(range(0, 200, 10))
    small_gap = [number + (900 if index >= 10 else 0) for index, number in enumerate(steady)]
    minutes = [number + (5110 if index >= 10 else 0) for index, number in enumerate(steady)]
    assert starts(still, steady) == (0,)
    assert starts(still, small_gap) == (0,)  # the camera stood still
    assert starts(still, minutes) == (0, 10)
    assert starts(still, [*range(10), *range(10)]) == (0, 10)  # the recorder counts anew
    assert starts([*stretch(scene(7), 10), *stretch(scene(8), 10)], small_gap) == (0, 10)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_very_short_videos(count: int) -> None:
    shots = shots_of_frames(stretch(scene(0), count), range(count))
    assert shots.starts == ((0,) if count else ())
    assert len(shots.curve) == max(0, count - 1)


def test_black_frames_are_one_shot() -> None:
    assert starts(stretch(np.zeros((48, 64, 3)), 20)) == (0,)


def video_of(frames: FrameList, folder: Path, excluded: range = range(0), view: View | None = None) -> Video:
    files = [folder / f"{index:03d}.png" for index in range(len(frames))]
    for file, frame in zip(files, frames, strict=True):
        cv2.imwrite(str(file), frame[..., ::-1])
    listed = [Frame(index, index, image=file) for index, file in enumerate(files)]
    return Video("a", "a", listed, view_setting=view, excluded=frozenset(excluded))


def test_excluded_frames_separate_shots_and_are_not_read(tmp_path: Path) -> None:
    video = video_of(stretch(scene(0), 20), tmp_path, excluded=range(8, 12))
    for index in video.excluded:
        (tmp_path / f"{index:03d}.png").unlink()
    done: list[int] = []
    shots = find_shots(video, progress=done.append)
    assert shots.starts == (0, 12)
    assert shots.members(0) == tuple(range(8))
    assert shots.members(1) == tuple(range(12, 20))
    assert (shots.of(7), shots.of(12)) == (0, 1)
    assert sum(done) == 16
    with pytest.raises(KeyError, match="excluded"):
        shots.of(9)
    with pytest.raises(KeyError, match="beyond"):
        shots.of(20)


def test_frames_that_do_not_take_part_separate_no_shots(tmp_path: Path) -> None:
    video = video_of([*stretch(scene(0), 24), *stretch(scene(1), 16)], tmp_path, excluded=range(9, 11))
    thinned = replace(video, take_every=4)
    assert thinned.usable == [*range(0, 40, 4)]
    assert find_shots(thinned).starts == (0, 12, 24)


def test_only_the_view_counts(tmp_path: Path) -> None:
    view = View(24, 12, 48, 48, (48.0, 36.0, 24.0))
    inside = view.mask(96, 72)[..., None]
    frames = [np.where(inside, scene(0), scene(i)).astype(np.uint8) for i in range(12)]  # a busy menu around it
    assert find_shots(video_of(frames, tmp_path, view=view)).starts == (0,)
    cut = [np.where(inside, scene(i // 6), 0).astype(np.uint8) for i in range(12)]
    assert find_shots(video_of(cut, tmp_path, view=view)).starts == (0, 6)


def test_real_video(shared: Path) -> None:
    """Handheld endoscopes move all the time: that is no reason to call every move a cut."""
    dataset = load_dataset(shared / "data" / "vocalfolds")
    for video in dataset.videos[2:6]:
        assert len(find_shots(video)) <= 1 + len(video) / 20


def test_the_drawing(tmp_path: Path) -> None:
    frames = [frame for i in range(14) for frame in stretch(scene(i), 6)]
    video = video_of(frames, tmp_path, excluded=range(20, 26))
    lines = draw_shots(thinned := replace(video, take_every=4), find_shots(thinned)).axes[0].lines
    assert [int(np.isnan(line.get_ydata()).sum()) for line in lines[:2]] == [1, 1]  # where frames are excluded
    curve, _, *_, at_cuts, _ = draw_shots(video, found := find_shots(video), labelled=[0]).axes[0].lines
    values = dict(zip(curve.get_xdata(), curve.get_ydata(), strict=True))
    assert values[26] > found.threshold[found.frames.index(26) - 1]  # the peak directly behind them
    assert dict(zip(*at_cuts.get_data(), strict=True)) == {cut: values[cut] for cut in found.starts[1:]}
    for shots in (found, Shots((), (), np.zeros(0), np.zeros(0))):
        draw_shots(video, shots, labelled=[0, 40]).savefig(tmp_path / "shots.png", dpi=40)
        assert read_image(tmp_path / "shots.png").std() > 5


def test_the_drawing_shows_frames_from_all_over_beside_both_sides_of_the_cuts(tmp_path: Path) -> None:
    """However few cuts there are: between them frames were not shown, and the picture was mostly white."""
    video = video_of([frame for i in range(2) for frame in stretch(scene(i), 30)], tmp_path)
    figure = draw_shots(video, shots := find_shots(video))
    titles = [axes.get_title() for axes in figure.axes[1:]]
    assert shots.starts == (0, 30)
    assert len(titles) == 24
    assert titles[titles.index("cut at 30") - 1] == "29"
    places = [int(title.removeprefix("cut at ")) for title in titles]
    assert max(after - before for before, after in pairwise([0, *places, 59])) <= 4
    figure.savefig(tmp_path / "shots.png", dpi=40)
    assert (read_image(tmp_path / "shots.png").min(axis=2) > 250).mean() < 0.6
    few = video_of(stretch(scene(0), 3), tmp_path)
    assert len(draw_shots(few, find_shots(few)).axes) == 1 + 3


def test_settings_are_checked() -> None:
    with pytest.raises(ValidationError):
        ShotSettings(flor=0.1)  # type: ignore[call-arg]


class Stored:
    """Frames in memory, as the frame store gives them."""

    def __init__(self, videos: dict[str, FrameList], round_view: bool, folder: Path) -> None:
        self.videos = videos
        self.round_view = round_view
        self.folder = folder

    def frame(self, video: str, index: int) -> np.ndarray:
        return self.videos[video][index]

    def labels(self, video: str, index: int) -> np.ndarray:
        raise KeyError((video, index))

    def inside(self, video: str) -> np.ndarray:
        whole = View(0, 0, 96, 72, (48, 36, 40) if self.round_view else None)
        return whole.mask(96, 72)

    def beside(self, video: str, kind: str) -> Path:
        return self.folder / kind / video


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("length", [1, 2, 8, 9, 10, 17])
def test_stored_frames_in_pieces_are_as_in_one(
    length: int, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces of 8 frames, and by processes: the same cuts, wherever they lie, and the same curve."""
    monkeypatch.setattr("suture.data.shots._CHUNK", 8)
    monkeypatch.setattr("suture.data.shots._FEW", 0)
    content = {name: stretch(scene(i), 7 + i, i) + stretch(scene(i + 5), 12, i) for i, name in enumerate("abc")}
    pixels = Stored({name: frames[:length] for name, frames in content.items()}, True, tmp_path)
    videos = [Video(name, name, [Frame(i, 2 * i) for i in range(length)]) for name in content]
    videos.append(Video("cut", "cut", [Frame(i, i) for i in range(length)], excluded=frozenset({1, 3, 4})))
    pixels.videos["cut"] = pixels.videos["a"]
    done: list[int] = []
    found = stored_shots(videos, pixels, workers, done.append)  # type: ignore[arg-type]
    assert sum(done) == sum(len(video.usable) for video in videos)
    for video in videos:
        frames = (pixels.frame(video.id, index) for index in video.usable)
        numbers = [video.frames[index].number for index in video.usable]
        whole = shots_of_frames(frames, numbers, video.usable, pixels.inside(video.id))
        assert found[video.id].starts == whole.starts
        assert found[video.id].frames == whole.frames
        np.testing.assert_array_equal(found[video.id].curve, whole.curve)
    assert [len(found[name]) for name in "abc"] == [1 + (length > 7 + i) for i in range(3)]


# What is kept of stored frames


def stored(root: Path, cache: Path, **changes: Any) -> tuple[list[Video], FrameStore]:
    """Two videos of 12 frames, the second of two shots, in a store; they are made once."""
    videos = []
    for name, frames in (("one", stretch(scene(0), 12)), ("two", stretch(scene(1), 7) + stretch(scene(2), 5))):
        (root / name).mkdir(parents=True, exist_ok=True)
        made = sorted((root / name).glob("*.png"))
        if not made:
            video_of(frames, root / name)
            made = sorted((root / name).glob("*.png"))
        listed = [Frame(index, index, image=file) for index, file in enumerate(made)]
        videos.append(replace(Video(name, name, listed, "train"), **changes))
    dataset = Dataset("kept", root, ClassTable(("tissue",), ((0, 0, 0),), {0: 0}), videos)
    usable = {video.id: video.usable for video in videos}
    return videos, FrameStore.open(dataset, usable, {}, 48, cache, workers=1, progress=False)


def starts_of(videos: list[Video], store: FrameStore) -> list[tuple[int, ...]]:
    return [shots.starts for shots in stored_shots(videos, store, workers=1).values()]


def measured(videos: list[Video], store: FrameStore, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The videos that are looked at for their shots."""
    seen = set()
    frame = FrameStore.frame

    def look(self: FrameStore, video: str, index: int) -> np.ndarray:
        seen.add(video)
        return frame(self, video, index)

    with monkeypatch.context() as patch:
        patch.setattr(FrameStore, "frame", look)
        stored_shots(videos, store, workers=1)
    return seen


def test_shots_of_the_same_frames_are_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    videos, store = stored(tmp_path / "data", tmp_path / "cache")
    found = stored_shots(videos, store)
    assert [shots.starts for shots in found.values()] == [(0,), (0, 7)]
    assert measured(videos, store, monkeypatch) == set()
    done: list[int] = []
    again = stored_shots(*stored(tmp_path / "data", tmp_path / "cache"), progress=done.append)  # another run
    assert sum(done) == 24
    for video in videos:
        assert again[video.id].starts == found[video.id].starts
        np.testing.assert_array_equal(again[video.id].curve, found[video.id].curve)


def test_what_is_kept_is_never_of_other_frames_or_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, cache = tmp_path / "data", tmp_path / "cache"
    assert starts_of(*stored(data, cache)) == [(0,), (0, 7)]
    assert starts_of(*stored(data, cache, take_every=2)) == [(0,), (0, 8)]
    assert starts_of(*stored(data, cache, excluded=frozenset({3}))) == [(0, 4), (0, 4, 7)]
    assert starts_of(*stored(data, cache, excluded=frozenset({11}))) == [(0,), (0, 7)]
    assert starts_of(*stored(data, cache, view_setting=View(0, 0, 48, 72))) == [(0,), (0, 7)]
    with monkeypatch.context() as patch:
        patch.setattr("suture.data.shots.ShotSettings", lambda: ShotSettings(floor=0.2))
        assert starts_of(*stored(data, cache)) == [(0,), (0,)]
    for index, frame in enumerate(stretch(scene(3), 8)):
        cv2.imwrite(str(data / f"one/{index + 4:03d}.png"), frame[..., ::-1])
    videos, store = stored(data, cache)
    assert measured(videos, store, monkeypatch) == {"one"}
    assert starts_of(videos, store) == [(0, 4), (0, 7)]


def test_what_the_numbers_of_frames_decide_is_not_kept(tmp_path: Path) -> None:
    """They are no part of the pixels."""
    videos, store = stored(tmp_path / "data", tmp_path / "cache")
    assert starts_of(videos, store) == [(0,), (0, 7)]
    late = [Frame(frame.index, frame.number + (5000 if frame.index >= 4 else 0)) for frame in videos[0].frames]
    assert starts_of([replace(videos[0], frames=late), videos[1]], store) == [(0, 4), (0, 7)]


@pytest.mark.parametrize("content", [b"", b"no array", b"cut off", b"too short"])
def test_what_is_damaged_is_found_again(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    videos, store = stored(tmp_path / "data", tmp_path / "cache")
    assert starts_of(videos, store) == [(0,), (0, 7)]
    kept = store.beside("two", "changes-1")
    whole = kept.read_bytes()
    if content == b"too short":
        np.save(kept, np.load(kept)[:-1])
    else:
        kept.write_bytes(whole[:-10] if content == b"cut off" else content)
    assert starts_of(videos, store) == [(0,), (0, 7)]
    assert kept.read_bytes() == whole
    assert measured(videos, store, monkeypatch) == set()


def test_where_nothing_can_be_kept(tmp_path: Path) -> None:
    videos, store = stored(tmp_path / "data", tmp_path / "cache")
    (tmp_path / "cache/changes-1").write_text("a file in the folder's place")
    assert starts_of(videos, store) == [(0,), (0, 7)]


def test_curves_that_are_measured_otherwise_are_kept_elsewhere(tmp_path: Path) -> None:
    """Where this fails, raise the number of `_KEPT` and put the new values here: those of before lie in caches."""
    videos, store = stored(tmp_path / "data", tmp_path / "cache")
    curve = stored_shots(videos, store)["two"].curve
    one, other = [0.0061, 0.0060, 0.0060, 0.0060, 0.0060, 0.0060], [0.0065, 0.0065, 0.0063, 0.0063]
    np.testing.assert_allclose(curve, [*one, 0.1812, *other], atol=5e-4)
    np.testing.assert_array_equal(np.load(store.beside("two", "changes-1")), curve)


SCRIPT = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from suture.data.store import FrameStore
from test_shots import starts_of, stored
videos, store = stored(Path(sys.argv[1]), Path(sys.argv[2]))
frame, seen = FrameStore.frame, []
def look(self, video, index):
    seen.append(index)
    time.sleep(0.02)
    return frame(self, video, index)
FrameStore.frame = look
if {killed}:
    os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
print("ready", flush=True)
sys.stdin.read()
found = starts_of(videos, store)
print(len(seen), found)
"""


def start(root: Path, cache: Path, killed: bool = False) -> subprocess.Popen[str]:
    """A run that looks for the shots; or that is killed while it writes the first of them."""
    script = SCRIPT.format(tests=str(Path(__file__).parent), killed=killed)
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(root), str(cache)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_of_several_runs_one_looks_and_the_others_wait(tmp_path: Path) -> None:
    stored(tmp_path / "data", tmp_path / "cache")
    processes = [start(tmp_path / "data", tmp_path / "cache") for _ in range(3)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    said = sorted(process.stdout.read() for process in processes if process.stdout)
    assert said == ["0 [(0,), (0, 7)]\n", "0 [(0,), (0, 7)]\n", "24 [(0,), (0, 7)]\n"]
    assert [process.wait(60) for process in processes] == [0, 0, 0]


def test_that_it_waits_is_told(tmp_path: Path) -> None:
    videos, store = stored(tmp_path / "data", tmp_path / "cache")
    waits, found = Event(), []
    run = Thread(target=lambda: found.append(stored_shots(videos, store, workers=1, waiting=waits.set)))
    with locked(tmp_path / "cache/changes-1/.lock", lambda: None):
        run.start()
        assert waits.wait(60)
        assert not found
    run.join(60)
    assert [shots.starts for shots in found[0].values()] == [(0,), (0, 7)]


def test_killed_while_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    videos, store = stored(tmp_path / "data", tmp_path / "cache")
    process = start(tmp_path / "data", tmp_path / "cache", killed=True)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    folder = tmp_path / "cache/changes-1"
    assert len(list(folder.iterdir())) == 2  # the lock, and what was half written
    assert measured(videos, store, monkeypatch) == {"one", "two"}
    assert {path.name for path in folder.iterdir()} == {
        ".lock",
        store.beside("one", "changes-1").name,
        store.beside("two", "changes-1").name,
    }
