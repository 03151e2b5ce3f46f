"""Both detectors of shots, on generated video and on hard negatives; and the curves that are kept."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.data.classes import ClassTable
from suture.data.dataset import Dataset, Frame, Video
from suture.data.datasets import load_dataset
from suture.data.shots import ShotSettings, find_shots, shots_of_frames, stored_shots
from suture.data.store import FrameStore
from suture.data.synthetic.render_video import render_video
from suture.data.synthetic.scenario import SyntheticSettings, plan_videos
from suture.data.view import View

FrameList = list[np.ndarray]


def scene(seed: int, width: int = 96, height: int = 72) -> np.ndarray:
    """A picture of soft patches."""
    patches = np.random.default_rng(seed).integers(30, 200, (7, 7, 3)).astype(np.uint8)
    return cv2.resize(patches, (width, height), interpolation=cv2.INTER_CUBIC)


def still(picture: np.ndarray, length: int, seed: int = 0) -> FrameList:
    """A still shot, with a camera's noise."""
    generator = np.random.default_rng(seed)
    return [np.clip(picture + generator.normal(0, 3, picture.shape), 0, 255).astype(np.uint8) for _ in range(length)]


PLAIN = ShotSettings(method="histogram")


def starts(
    frames: Iterable[np.ndarray], numbers: Iterable[int] | None = None, settings: ShotSettings | None = None
) -> tuple[int, ...]:
    frames = list(frames)
    numbers = range(len(frames)) if numbers is None else list(numbers)
    return shots_of_frames(frames, numbers, settings=settings).starts


@pytest.mark.parametrize(
    ("method", "fps", "precision", "recall"),
    [
        ("blockwise", 1, 0.95, 0.95),
        ("blockwise", 5, 0.95, 0.95),
        ("blockwise", 25, 0.95, 0.95),
        ("histogram", 25, 0.95, 0.6),
    ],
)
def test_finds_the_cuts_of_generated_video(method: Any, fps: int, precision: float, recall: float) -> None:
    """Smoke, blood, light, blur, sweeps and instruments are none."""
    right = found = there = 0
    settings = SyntheticSettings(seed=7, cases=3, frames=40, shots=5, fps=fps, width=64, height=64)
    for video in plan_videos(settings):
        excluded = {frame for first, last in video.excluded for frame in range(first, last + 1)}
        usable = [index for index in range(settings.frames) if index not in excluded]
        frames = [frame for frame, _ in render_video(video, usable)]
        inside = video.view.mask(64, 64) if video.view else None
        shots = shots_of_frames(frames, usable, usable, inside, ShotSettings(method=method))
        got = set(shots.starts[1:])
        true = {min(index for index in usable if index >= cut) for cut in video.cuts}
        right, found, there = right + len(got & true), found + len(got), there + len(true)
    assert there >= 16
    assert right / found >= precision
    assert right / there >= recall


def test_the_plain_detector_sees_intensities_alone() -> None:
    picture = scene(1)
    dimmed = [*still(picture, 10), *still(picture * 0.5, 10)]
    mirrored = [*still(picture, 10), *still(picture[:, ::-1], 10)]
    assert (starts(dimmed), starts(mirrored)) == ((0,), (0, 10))
    assert (starts(dimmed, settings=PLAIN), starts(mirrored, settings=PLAIN)) == ((0, 10), (0,))
    assert starts(dimmed, settings=PLAIN.model_copy(update={"threshold": 1.0})) == (0,)


@given(st.lists(st.integers(2, 12), min_size=1, max_size=5), st.integers(0, 10**6))
def test_every_frame_has_one_shot(lengths: list[int], seed: int) -> None:
    frames = [frame for i, length in enumerate(lengths) for frame in still(scene(seed + i), length, seed)]
    shots = shots_of_frames(frames, range(len(frames)))
    assert shots.starts == tuple(np.cumsum([0, *lengths[:-1]]).tolist())
    assert [index for shot in range(len(shots)) for index in shots.members(shot)] == list(range(len(frames)))
    assert all(index in shots.members(shots.of(index)) for index in range(len(frames)))
    assert len(shots.curve) == len(shots.threshold) == len(frames) - 1


def test_lamps_smoke_instruments_blood_and_odd_frames_are_no_cuts() -> None:
    picture, with_tool, bloody = scene(3), scene(3), scene(3)
    cv2.line(with_tool, (96, 72), (45, 30), (150, 150, 155), 14)
    cv2.circle(bloody, (30, 40), 18, (90, 5, 5), -1)
    bright, dark, smoky = np.clip(picture * 1.25, 0, 255), picture * 0.5, 0.4 * picture + 0.6 * 190
    for others in ((bright, dark), (smoky, picture), (with_tool, bloody)):
        assert starts([frame for shown in (picture, *others) for frame in still(shown, 10)]) == (0,)
    steady = still(picture, 20)
    for odd in (scene(5), np.full_like(picture, 255), np.zeros_like(picture)):
        assert starts([*steady[:10], odd, *steady[10:]]) == (0,)


def test_shots_of_one_frame() -> None:
    assert starts([*still(scene(0), 5), scene(1), *still(scene(2), 5)]) == (0, 5, 6)


def test_a_restless_video_needs_more() -> None:
    generator = np.random.default_rng(0)
    restless = [np.roll(scene(6), tuple(generator.integers(-20, 20, 2)), (0, 1)) for _ in range(40)]
    assert len(starts(restless)) <= 3


def test_only_large_gaps_in_the_numbers_are_cuts() -> None:
    steady = list(range(0, 200, 10))
    small_gap, minutes = (steady[:10] + [number + gap for number in steady[10:]] for gap in (900, 5110))
    for numbers, expected in ((steady, (0,)), (small_gap, (0,)), (minutes, (0, 10)), ([*range(10)] * 2, (0, 10))):
        assert starts(still(scene(7), 20), numbers) == expected
    assert starts([*still(scene(7), 10), *still(scene(8), 10)], small_gap) == (0, 10)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_very_short_videos(count: int) -> None:
    shots = shots_of_frames(still(scene(0), count), range(count))
    assert shots.starts == ((0,) if count else ())
    assert len(shots.curve) == max(0, count - 1)


def test_black_frames_are_one_shot() -> None:
    assert starts(still(np.zeros((48, 64, 3)), 20)) == (0,)


def video_of(frames: FrameList, folder: Path, excluded: range = range(0), view: View | None = None) -> Video:
    files = [folder / f"{index:03d}.png" for index in range(len(frames))]
    for file, frame in zip(files, frames, strict=True):
        cv2.imwrite(str(file), frame[..., ::-1])
    listed = [Frame(index, index, image=file) for index, file in enumerate(files)]
    return Video("a", "a", listed, view_setting=view, excluded=frozenset(excluded))


def test_excluded_frames_separate_shots_and_are_not_read(tmp_path: Path) -> None:
    video = video_of(still(scene(0), 20), tmp_path, excluded=range(8, 12))
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
    video = video_of([*still(scene(0), 24), *still(scene(1), 16)], tmp_path, excluded=range(9, 11))
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


class Stored:
    """Frames in memory, as the frame store gives them."""

    def __init__(self, videos: dict[str, FrameList], folder: Path) -> None:
        self.videos = videos
        self.folder = folder

    def frame(self, video: str, index: int) -> np.ndarray:
        return self.videos[video][index]

    def inside(self, video: str) -> np.ndarray:
        return View(0, 0, 96, 72, (48, 36, 40)).mask(96, 72)

    def derived_path(self, video: str, kind: str) -> Path:
        return self.folder / kind / video


@pytest.mark.parametrize(("workers", "method"), [(1, "blockwise"), (2, "blockwise"), (1, "histogram")])
@pytest.mark.parametrize("length", [1, 2, 17])
def test_stored_shots_equal_those_of_the_frames(
    length: int, workers: int, method: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("suture.data.shots._MIN_PARALLEL_FRAMES", 0)
    content = {name: still(scene(i), 7 + i, i) + still(scene(i + 5), 12, i) for i, name in enumerate("abc")}
    store = Stored({name: frames[:length] for name, frames in content.items()}, tmp_path)
    videos = [Video(name, name, [Frame(i, 2 * i) for i in range(length)]) for name in content]
    videos.append(Video("cut", "cut", [Frame(i, i) for i in range(length)], excluded=frozenset({1, 3, 4})))
    store.videos["cut"] = store.videos["a"]
    done: list[int] = []
    settings = ShotSettings(method=method)
    found = stored_shots(videos, store, settings, workers=workers, progress=done.append)  # type: ignore[arg-type]
    assert sum(done) == sum(len(video.usable) for video in videos)
    for video in videos:
        frames = (store.frame(video.id, index) for index in video.usable)
        numbers = [video.frames[index].number for index in video.usable]
        whole = shots_of_frames(frames, numbers, video.usable, store.inside(video.id), settings)
        assert found[video.id].starts == whole.starts
        np.testing.assert_array_equal(found[video.id].curve, whole.curve)
    if method == "blockwise":
        assert [len(found[name]) for name in "abc"] == [1 + (length > 7 + i) for i in range(3)]


KEPT = "shots-blockwise"


def stored(root: Path, cache: Path, **changes: Any) -> tuple[list[Video], FrameStore]:
    """Two videos of 12 frames, the second of two shots, in a store; they are made once."""
    videos = []
    for name, frames in (("one", still(scene(0), 12)), ("two", still(scene(1), 7) + still(scene(2), 5))):
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


def starts_of(videos: list[Video], store: FrameStore, settings: ShotSettings | None = None) -> list[tuple[int, ...]]:
    return [shots.starts for shots in stored_shots(videos, store, settings, workers=1).values()]


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
    assert starts_of(*stored(data, cache), ShotSettings(floor=0.2)) == [(0,), (0,)]
    assert starts_of(*stored(data, cache), PLAIN.model_copy(update={"threshold": 1.0})) == [(0,), (0,)]
    assert starts_of(*stored(data, cache), PLAIN.model_copy(update={"threshold": 0.1})) == [(0,), (0, 7)]
    for index, frame in enumerate(still(scene(3), 8)):
        cv2.imwrite(str(data / f"one/{index + 4:03d}.png"), frame[..., ::-1])
    videos, store = stored(data, cache)
    assert measured(videos, store, monkeypatch) == {"one"}
    assert starts_of(videos, store) == [(0, 4), (0, 7)]


@pytest.mark.parametrize("content", [b"", b"no array", b"cut off", b"too short"])
def test_what_is_damaged_is_found_again(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    videos, store = stored(tmp_path / "data", tmp_path / "cache")
    assert starts_of(videos, store) == [(0,), (0, 7)]
    kept = store.derived_path("two", KEPT)
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
    (tmp_path / f"cache/{KEPT}").write_text("a file in the folder's place")
    assert starts_of(videos, store) == [(0,), (0, 7)]
