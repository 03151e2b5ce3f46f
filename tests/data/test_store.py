"""The frame store: right pixels, right keys, whole files whatever happens while it is built."""

import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import psutil
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from suture.core.errors import UserError
from suture.core.io import locked
from suture.data import store as store_module
from suture.data.classes import IGNORE, ClassTable
from suture.data.dataset import Dataset, Frame, Video
from suture.data.images import MaskFile
from suture.data.store import Fit, FrameStore, frames_key, labels_key, storage_size
from suture.data.video import VideoFile
from suture.data.view import View

CLASSES = ClassTable(("tissue", "tool"), ((200, 90, 80), (90, 90, 90)), {0: 0, 1: 1})
WIDTH, HEIGHT = 80, 60
CIRCLE = View(10, 6, 48, 48, (34.0, 30.0, 24.0))


def picture(index: int) -> np.ndarray:
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    return np.stack([(columns * 3 + index * 7) % 256, rows * 4, np.full_like(rows, index)], -1).astype(np.uint8)


def make_dataset(root: Path, frames: int = 12) -> Dataset:
    """A folder of frames with a mask for each, seen through a circle, and a video file without any."""
    folder = root / "a"
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for index in range(frames):
        image, mask = folder / f"{index:05d}.png", folder / f"{index:05d}_mask.png"
        if not mask.exists():
            cv2.imwrite(str(image), cv2.cvtColor(picture(index), cv2.COLOR_RGB2BGR))
            cv2.imwrite(str(mask), (np.mgrid[:HEIGHT, :WIDTH][1] > 20 + index).astype(np.uint8))
        listed.append(Frame(index, index, image=image, mask=MaskFile(mask)))
    path = root / "b.mp4"
    if not path.exists():
        with av.open(str(path), "w") as container:
            stream: Any = container.add_stream("libx264", rate=25)
            stream.width, stream.height, stream.pix_fmt, stream.gop_size = WIDTH, HEIGHT, "yuv420p", 10
            for index in range(45):
                frame = av.VideoFrame.from_ndarray(picture(index), format="rgb24")
                frame.pts, frame.time_base = index, Fraction(1, 25)
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
    file = VideoFile(path)
    videos = [
        Video("a", "one", listed, "train", view_setting=CIRCLE),
        Video("b", "two", [Frame(index, index) for index in range(len(file))], "train", file=file),
    ]
    return Dataset("test", root, CLASSES, videos)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return make_dataset(tmp_path / "data")


def open_store(dataset: Dataset, cache: Path, size: int = 24, **changes: Any) -> FrameStore:
    settings: dict[str, Any] = {"frames": {"a": range(12), "b": range(45)}, "labelled": {"a": [0, 5]}}
    settings |= {"workers": 2, "progress": False}
    return FrameStore.open(dataset, size=size, cache=cache, **(settings | changes))


def decoded(dataset: Dataset, video: str, index: int) -> np.ndarray:
    """What `open_store` keeps of a frame, by decoding it."""
    return Fit.of(dataset[video], 24).frame(dataset[video].read(index), index)


def stored_files(cache: Path) -> set[str]:
    return {path.name for folder in ("frames", "labels") for path in cache.glob(f"{folder}/*")}


def test_stored_and_decoded_frames_agree(dataset: Dataset, tmp_path: Path) -> None:
    store = open_store(dataset, tmp_path / "cache")
    for video in dataset:
        np.testing.assert_array_equal(store.inside(video.id), Fit.of(video, 24).inside())
        for index in range(len(video)):
            assert store.frame(video.id, index).shape == (*Fit.of(video, 24).shape, 3)
            np.testing.assert_array_equal(store.frame(video.id, index), decoded(dataset, video.id, index))
    for index in (0, 5):
        kept = Fit.of(dataset["a"], 24).labels(dataset.read_mask(dataset["a"], index), index)
        np.testing.assert_array_equal(store.labels("a", index), kept)
    for place in (("a", 1), ("b", 0)):
        with pytest.raises(KeyError):
            store.labels(*place)
    assert store.nbytes == 12 * 24 * 24 * 3 + 45 * 24 * 32 * 3 + 2 * 24 * 24


def test_shape_keeps_the_aspect_and_is_never_enlarged(dataset: Dataset, tmp_path: Path) -> None:
    store = open_store(dataset, tmp_path / "cache", size=30)
    assert [store.frame(video, 0).shape for video in "ab"] == [(30, 30, 3), (30, 40, 3)]
    native = open_store(dataset, tmp_path / "cache", size=1000)
    assert [native.frame(video, 0).shape for video in "ab"] == [(48, 48, 3), (HEIGHT, WIDTH, 3)]
    np.testing.assert_array_equal(native.frame("a", 3), CIRCLE.crop(picture(3)))


def test_frame_is_the_mean_over_each_area(dataset: Dataset, tmp_path: Path) -> None:
    found = open_store(dataset, tmp_path / "cache", size=12).frame("a", 4)
    expected = CIRCLE.crop(picture(4)).reshape(12, 4, 12, 4, 3).mean((1, 3))
    assert np.abs(found - expected).max() <= 1


def test_labels_are_nearest_and_ignore_outside_the_circle(dataset: Dataset, tmp_path: Path) -> None:
    store = open_store(dataset, tmp_path / "cache", size=16)
    labels, inside = store.labels("a", 5), store.inside("a")
    native = CIRCLE.crop(dataset.read_mask(dataset["a"], 5))
    np.testing.assert_array_equal(labels, native[1::3, 1::3])
    np.testing.assert_array_equal(labels == IGNORE, ~inside)
    assert set(np.unique(labels)) == {0, 1, IGNORE}
    assert not inside[0, 0]
    assert inside[8, 8]
    assert inside.dtype == bool
    assert store.inside("b").all()


def test_a_store_is_found_again_and_shared(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    open_store(dataset, cache)
    first = stored_files(cache)
    assert len(first) == 3
    open_store(dataset, cache, labelled={"a": [0, 5, 7]})
    assert len(stored_files(cache)) == 4
    moved = shutil.copytree(dataset.root, tmp_path / "moved")
    monkeypatch.setattr(store_module, "_build", pytest.fail)
    open_store(make_dataset(moved), cache)


@pytest.mark.parametrize("kept", [0, 100, 2000])
def test_a_file_that_was_cut_off_is_made_again(dataset: Dataset, tmp_path: Path, kept: int) -> None:
    """As by a copy of the cache folder that was stopped."""
    store = open_store(dataset, tmp_path / "cache")
    expected = store.frame("b", 7).copy()
    for file in (tmp_path / "cache").glob("*/*.npy"):
        os.truncate(file, kept)
    np.testing.assert_array_equal(open_store(dataset, tmp_path / "cache").frame("b", 7), expected)


def test_pickled_store_carries_no_pixels(dataset: Dataset, tmp_path: Path) -> None:
    store = open_store(dataset, tmp_path / "cache")
    expected = store.frame("b", 7)
    pickled = pickle.dumps(store)
    assert len(pickled) < 5000
    np.testing.assert_array_equal(pickle.loads(pickled).frame("b", 7), expected)


def test_frames_cannot_be_overwritten(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="read-only"):
        open_store(dataset, tmp_path / "cache").frame("a", 0)[:] = 0


@pytest.mark.parametrize(("train_size", "crop"), [(480, 0.5), (512, 0.2), (321, 1.0)])
def test_storage_size(train_size: int, crop: float) -> None:
    size = storage_size(train_size, crop)
    assert train_size / (crop * size) <= 1.5 < train_size / (crop * (size - 1))


def test_no_room(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    with pytest.raises(UserError, match=r"needs 0\.\d MB .* only 0\.0 MB are free"):
        open_store(dataset, tmp_path / "cache")
    assert not stored_files(tmp_path / "cache")


def mask_path(dataset: Dataset, index: int) -> Path:
    mask = dataset["a"].masks[index]
    assert isinstance(mask, MaskFile)
    return mask.path


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"frame": b"cut"}, r"00005\.png"),
        ({"frame": (8, 9)}, r"Video a: frame 5 has 9×8 pixels, expected 80×60"),
        ({"mask": (8, 9)}, r"00005_mask\.png is 9×8 on a frame of 80×60"),
        ({"frame": (8, 9), "mask": (8, 9)}, r"Video a: frame 5 has 9×8 pixels, expected 80×60"),
    ],
)
def test_damaged_or_resized_files_are_named(
    wrong: dict[str, Any], message: str, dataset: Dataset, tmp_path: Path
) -> None:
    paths = {"frame": dataset["a"].frames[5].image, "mask": mask_path(dataset, 5)}
    for kind, shape in wrong.items():
        path = paths[kind]
        assert path is not None
        if shape == b"cut":
            path.write_bytes(path.read_bytes()[:100])
        else:
            cv2.imwrite(str(path), np.zeros((*shape, 3) if kind == "frame" else shape, np.uint8))
    with pytest.raises(UserError, match=message):
        open_store(dataset, tmp_path / "cache")
    assert all(name.endswith(".npy") for name in stored_files(tmp_path / "cache"))


def test_a_wrong_mask_stops_before_any_frame_is_decoded(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, decoded = Video.read, tmp_path / "decoded"

    def noting(video: Video, index: int) -> np.ndarray:
        with decoded.open("a") as file:
            file.write(f"{video.id} {index}\n")
        return read(video, index)

    monkeypatch.setattr(Video, "read", noting)  # the workers are forked
    dataset.classes = ClassTable(("tool",), ((0, 255, 0),), {1: 0})
    with pytest.raises(UserError, match="holds the value 0 "):
        open_store(dataset, tmp_path / "cache")
    assert not decoded.exists()
    dataset.classes = replace(dataset.classes, unpainted=IGNORE)
    open_store(dataset, tmp_path / "cache")
    assert len(decoded.read_text().splitlines()) == 57


def test_bad_requests(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no frame 12"):
        open_store(dataset, tmp_path / "cache", frames={"a": [0, 12]})
    with pytest.raises(UserError, match="Frame 4 of video b is listed as labelled"):
        open_store(dataset, tmp_path / "cache", labelled={"b": [4]})
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="SUTURE_CACHE"):
        open_store(dataset, tmp_path / "file" / "cache")


def test_view_outside_the_frame(dataset: Dataset, tmp_path: Path) -> None:
    dataset["b"].view_setting = View(500, 0, 10, 10)
    with pytest.raises(UserError, match="outside"):
        open_store(dataset, tmp_path / "cache")


# Keys

FITS = st.builds(
    Fit,
    name=st.just("v"),
    native=st.just((WIDTH, HEIGHT)),
    view=st.builds(
        View,
        st.integers(0, 5),
        st.integers(0, 5),
        st.just(50),
        st.just(40),
        st.sampled_from([None, (30.0, 30.0, 15.0)]),
    ),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 50)),
)
INDICES = st.lists(st.integers(0, 10**6), min_size=1, max_size=5, unique=True).map(sorted)
CONTENTS = st.binary(max_size=2).map(bytes.hex)
TABLES = st.builds(
    lambda merged, unpainted: ClassTable(("a", "b"), ((0, 0, 0), (1, 1, 1)), {0: 0, 1: 1, 2: merged}, unpainted),
    st.sampled_from([0, 1, IGNORE]), st.sampled_from([None, 0, IGNORE]),
)  # fmt: skip
ANNOTATED = st.one_of(st.none(), st.sampled_from([("a",), ("b",), ("a", "b")]))


@given(st.tuples(CONTENTS, INDICES, FITS), st.tuples(CONTENTS, INDICES, FITS))
def test_frames_key(one: tuple[str, list[int], Fit], other: tuple[str, list[int], Fit]) -> None:
    assert (frames_key(*one) == frames_key(*other)) == (one == other)
    assert frames_key(*one) == frames_key(*pickle.loads(pickle.dumps(one)))


@given(st.tuples(CONTENTS, ANNOTATED, TABLES, INDICES, FITS), st.data())
def test_each_part_changes_the_labels_key(one: tuple[Any, ...], data: st.DataObject) -> None:
    def key(content: str, annotated: Any, classes: ClassTable, indices: Sequence[int], fit: Fit) -> str:
        return labels_key([content] * len(indices), [annotated] * len(indices), classes, indices, fit)

    assert key(*one) == key(*pickle.loads(pickle.dumps(one)))
    for place, strategy in enumerate((CONTENTS, ANNOTATED, TABLES, INDICES, FITS)):
        changed = data.draw(strategy)
        assume(changed != one[place])
        other: Any = (*one[:place], changed, *one[place + 1 :])
        assert key(*one) != key(*other)


# Several processes

SCRIPT = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from suture.data.dataset import Video
from test_store import make_dataset, open_store
read = Video.read
Video.read = lambda video, index: time.sleep({slow}) or read(video, index)
store = open_store(make_dataset(Path(sys.argv[1])), Path(sys.argv[2]), progress=True)
print(sum(int(store.frame("b", index).sum()) for index in range(45)))
"""


def start(dataset: Dataset, cache: Path, slow: float = 0) -> subprocess.Popen[str]:
    """A second process that opens the store, taking `slow` seconds to read a frame."""
    script = SCRIPT.format(tests=str(Path(__file__).parent), slow=slow)
    command = [sys.executable, "-c", script, str(dataset.root), str(cache)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def test_several_processes_wait_for_each_other_and_build_once(dataset: Dataset, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with locked(cache / "store.lock", lambda: None):
        processes = [start(dataset, cache, slow=0.01) for _ in range(3)]
        for process in processes:
            assert process.stderr is not None
            assert "Another process is building the frame store" in process.stderr.readline()
        assert not stored_files(cache)
    expected = sum(int(decoded(dataset, "b", index).sum()) for index in range(45))
    messages = ""
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert (process.returncode, output) == (0, f"{expected}\n"), errors
        messages += errors
    assert messages.count("57 frames and 2 masks need") == 1
    assert len(stored_files(cache)) == 3
    assert all(name.endswith(".npy") for name in stored_files(cache))


def test_killed_half_way(dataset: Dataset, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    process = start(dataset, cache, slow=0.2)
    wait_for(lambda: len(psutil.Process(process.pid).children()) == 2)
    workers = psutil.Process(process.pid).children()
    time.sleep(0.5)
    process.kill()
    process.communicate()
    assert any(name.endswith(".tmp") for name in stored_files(cache))

    store = open_store(dataset, cache)
    for video in dataset:
        for index in range(len(video)):
            np.testing.assert_array_equal(store.frame(video.id, index), decoded(dataset, video.id, index))
    assert all(name.endswith(".npy") for name in stored_files(cache))
    wait_for(lambda: not any(is_alive(worker) for worker in workers))


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
