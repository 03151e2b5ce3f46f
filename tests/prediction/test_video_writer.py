"""Videos by one and by several encoders: the same frames at the same times, or an error and no file."""

import errno
import resource
import threading
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import av
import numpy as np
import pytest
from predict_files import picture, wait

from suture.data.video import VideoFile
from suture.prediction import video_writer as module
from suture.prediction.video_writer import (
    GROUP_FRAMES,
    TICK,
    Accepted,
    VideoWriter,
    rgb_to_planes,
    video_frame,
    video_writer,
)

SIZE = (48, 40)


def count_on(monkeypatch: pytest.MonkeyPatch, encoders: int) -> None:
    """Let so many encoders share a video."""
    monkeypatch.setattr(module, "cores", lambda: encoders * module.ENCODER_THREADS)


def frame(index: int, size: tuple[int, int] = SIZE) -> av.VideoFrame:
    return video_frame(rgb_to_planes(picture(index, *size)), "yuv420p")


def write(
    path: Path, count: int, time: Callable[[int], float] = lambda index: index / 25, size: tuple[int, int] = SIZE
) -> Path:
    before = threading.active_count()
    try:
        with video_writer(path, "libx264", 25) as video:
            for index in range(count):
                video.add(frame(index, size), time(index))
    finally:
        assert threading.active_count() == before
    return path


def packets(path: Path) -> list[tuple[int | None, int | None, bool]]:
    with av.open(str(path)) as container:
        return [(one.pts, one.dts, one.is_keyframe) for one in container.demux(video=0) if one.size]


@pytest.mark.parametrize("count", [1, 2, GROUP_FRAMES, GROUP_FRAMES + 1, 3 * GROUP_FRAMES - 1, 7 * GROUP_FRAMES + 5])
def test_several_encoders_write_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    def time(index: int) -> float:
        return (index + index % 3 / 4) / 25  # at no constant rate

    count_on(monkeypatch, 1)
    alone = write(tmp_path / "alone.mp4", count, time)
    count_on(monkeypatch, 3)
    shared = write(tmp_path / "shared.mp4", count, time)
    times = [round(time(index) / TICK) for index in range(count)]
    for path in (alone, shared):
        assert [(shown, sent) for shown, sent, _ in packets(path)] == [(stamp, stamp) for stamp in times]
    assert [place for place, (*_, key) in enumerate(packets(shared)) if key] == list(range(0, count, GROUP_FRAMES))
    one, other = VideoFile(alone), VideoFile(shared)
    assert len(one) == len(other) == count
    for index, (here, there) in enumerate(zip(one.frames(), other.frames(), strict=True)):
        for shown in (here, there):  # but for the codec's error: the next picture is 11 away
            assert np.abs(shown.astype(int) - picture(index, *SIZE)).mean() < 8
    assert write(tmp_path / "again.mp4", count, time).read_bytes() == shared.read_bytes()


def test_any_frame_can_be_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count_on(monkeypatch, 3)
    path = write(tmp_path / "film.mp4", 5 * GROUP_FRAMES + 3)
    in_order = list(VideoFile(path).frames())
    for index in np.random.default_rng(0).permutation(len(in_order)).tolist():
        np.testing.assert_array_equal(VideoFile(path).read(index), in_order[index])


def test_one_description_is_for_all_encoders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count_on(monkeypatch, 4)
    with video_writer(tmp_path / "film.mp4", "libx264", 29.97) as video:
        for index in range(4 * GROUP_FRAMES):
            video.add(frame(index), index / 29.97)
        for taken in video._accepting:
            taken.result()
        assert len({encoder.extradata for encoder in video._encoders}) == 1
        assert video._encoders[0].extradata


def test_masks_have_one_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which takes each frame at once."""
    count_on(monkeypatch, 3)
    masks = np.random.default_rng(0).integers(0, 256, (2 * GROUP_FRAMES, 30, 20), np.uint8)
    with video_writer(tmp_path / "masks.mkv", "ffv1", 25) as video:
        taken = {video.add(video_frame(mask, "gray"), index / 25) for index, mask in enumerate(masks)}
    assert taken == {None}
    with av.open(str(tmp_path / "masks.mkv")) as container:
        decoded = [one.to_ndarray() for one in container.decode(video=0)]
    np.testing.assert_array_equal(decoded, masks)


def test_few_cores_have_one_encoder_and_many_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for cores in (1, 4, 8, 16, 128):
        monkeypatch.setattr(module, "cores", lambda cores=cores: cores)
        found.append(module.encoders())
    assert found == [1, 1, 2, 4, 4]


class Slow:
    """An encoder that takes nothing until it may, and fails at a certain frame."""

    def __init__(self, encoder: Any, may: Event, fails_at: int = -1) -> None:
        self._encoder, self._may, self._fails_at = encoder, may, fails_at

    def encode(self, given: av.VideoFrame | None) -> Any:
        self._may.wait()
        if given is not None and given.pts == self._fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._encoder.encode(given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)


def slowed(monkeypatch: pytest.MonkeyPatch, may: Event, fails_at: int = -1) -> None:
    begin = VideoWriter._begin

    def begun(self: VideoWriter, first: av.VideoFrame) -> None:
        begin(self, first)
        self._encoders = [Slow(encoder, may, fails_at) for encoder in self._encoders]

    monkeypatch.setattr(VideoWriter, "_begin", begun)


@pytest.mark.parametrize("encoders", [1, 3])
@pytest.mark.parametrize("count", [GROUP_FRAMES + 5, 10 * GROUP_FRAMES])
def test_an_encoder_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoders: int, count: int) -> None:
    """Its error comes out of a later frame or of the end, and there is neither file nor thread."""
    count_on(monkeypatch, encoders)
    may = Event()
    may.set()
    slowed(monkeypatch, may, fails_at=round((GROUP_FRAMES + 3) / 25 / TICK))
    added: list[int] = []

    def time(index: int) -> float:
        added.append(index)
        return index / 25

    with pytest.raises(OSError, match="No space left on device"):
        write(tmp_path / "film.mp4", count, time)
    assert (len(added) == count) == (encoders == 3 and count == GROUP_FRAMES + 5)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("encoders", [1, 3])
@pytest.mark.parametrize("size", [SIZE, (480, 360)])
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoders: int, size: tuple[int, int]) -> None:
    """Small frames are still in memory when it is found in the end; large ones are not."""
    count_on(monkeypatch, encoders)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write(tmp_path / "film.mp4", 6 * GROUP_FRAMES, size=size)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_frames_wait_in_bounded_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count_on(monkeypatch, 3)
    slowed(monkeypatch, may := Event())
    added: list[Accepted] = []

    def add() -> None:
        with video_writer(tmp_path / "film.mp4", "libx264", 25) as video:
            added.extend(video.add(frame(index), index / 25) for index in range(8 * GROUP_FRAMES))

    thread = threading.Thread(target=add)
    thread.start()
    wait(lambda: len(added) > 3 * GROUP_FRAMES)
    thread.join(0.2)
    assert len(added) == 3 * GROUP_FRAMES + 1  # one more stands before the door
    assert not any(taken is None or taken.done() for taken in added)
    may.set()
    thread.join(60)
    assert len(added) == 8 * GROUP_FRAMES
    assert all(taken is not None and taken.done() for taken in added)
    assert len(VideoFile(tmp_path / "film.mp4")) == 8 * GROUP_FRAMES
