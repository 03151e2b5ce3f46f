"""Fingerprints: by content, remembered, and never wrong because of what is remembered."""

import hashlib
import multiprocessing
import os
from pathlib import Path

import pytest

from suture.core.errors import UserError
from suture.data import fingerprint
from suture.data.cache import cache_folder
from suture.data.dataset import Frame, Video
from suture.data.fingerprint import Fingerprints, file_sha256
from suture.data.images import MaskFile
from suture.data.video import VideoFile

OLD = 1_600_000_000


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Files that have not changed for years."""
    folder = tmp_path / "frames"
    folder.mkdir()
    paths = [folder / f"{number:03d}.png" for number in range(20)]
    for path in paths:
        write(path, path.name.encode() * 1000)
    return paths


def write(path: Path, content: bytes, changed: int = OLD) -> None:
    path.write_bytes(content)
    os.utime(path, (changed, changed))


def video_of(paths: list[Path]) -> Video:
    return Video("v", "c", [Frame(index, index, image=path) for index, path in enumerate(paths)])


def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are really read from now on."""
    seen: list[Path] = []

    def spy(path: Path) -> str:
        seen.append(path)
        return file_sha256(path)

    monkeypatch.setattr(fingerprint, "file_sha256", spy)
    return seen


def test_files_are_hashed_once(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    seen = hashed(monkeypatch)
    assert Fingerprints(tmp_path).files(files) == expected
    assert sorted(seen) == files
    assert Fingerprints(tmp_path).files(files) == expected
    assert len(seen) == len(files)


def test_a_changed_file_is_hashed_again(files: list[Path], tmp_path: Path) -> None:
    before = Fingerprints(tmp_path).files(files)
    write(files[3], files[3].read_bytes()[::-1], OLD + 1)
    after = Fingerprints(tmp_path).files(files)
    assert [a == b for a, b in zip(after, before, strict=True)] == [n != 3 for n in range(len(files))]


def test_a_file_that_has_just_changed_is_not_remembered(files: list[Path], tmp_path: Path) -> None:
    for content in (b"one", b"two"):
        files[0].write_bytes(content)
        stamp = files[0].stat().st_mtime_ns
        assert Fingerprints(tmp_path).files(files[:1]) == [hashlib.sha256(content).hexdigest()]
        os.utime(files[0], ns=(stamp, stamp))


@pytest.mark.parametrize("damage", ["damaged", "folder"])
def test_a_lost_database_costs_only_time(files: list[Path], tmp_path: Path, damage: str) -> None:
    expected = Fingerprints(tmp_path).files(files)
    database = Fingerprints(tmp_path).path
    if damage == "damaged":
        database.write_bytes(b"this is no database " * 1000)
    else:
        database.unlink()
        database.mkdir()
    assert Fingerprints(tmp_path).files(files) == expected
    assert Fingerprints(tmp_path).files(files) == expected


def test_many_processes_at_once(files: list[Path], tmp_path: Path) -> None:
    expected = [file_sha256(path) for path in files]
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert pool.map(Fingerprints(tmp_path).files, [files] * 8) == [expected] * 8


def test_video_is_what_its_frames_are(files: list[Path], tmp_path: Path) -> None:
    prints = Fingerprints(tmp_path)
    whole = prints.video(video_of(files))
    assert whole == prints.video(video_of(files))
    others = [files[:-1], files[::-1]]
    renamed = files[0].with_name("other.png")
    write(renamed, files[0].read_bytes())
    assert len({whole, *(prints.video(video_of(paths)) for paths in [*others, [renamed, *files[1:]]])}) == 4

    moved = tmp_path / "elsewhere"
    files[0].parent.rename(moved)
    assert prints.video(video_of([moved / path.name for path in files])) == whole


def test_a_known_video_is_one_query(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prints = Fingerprints(tmp_path)
    whole = prints.video(video_of(files))
    keys: list[str] = []
    recall = Fingerprints._recall
    monkeypatch.setattr(Fingerprints, "_recall", lambda self, asked: (keys.extend(asked), recall(self, asked))[1])
    assert prints.video(video_of(files)) == whole
    assert len(keys) == 1

    write(files[7], files[7].read_bytes()[::-1], OLD + 1)
    assert prints.video(video_of(files)) != whole
    files[7].write_bytes(b"just now")
    seen = hashed(monkeypatch)
    for _ in range(2):
        prints.video(video_of(files))
    assert len(seen) == 2 * len(files)  # a video that has just changed is not remembered yet


def test_a_video_is_of_one_moment(files: list[Path], tmp_path: Path) -> None:
    video = video_of(files)
    whole = Fingerprints(tmp_path).video(video)
    write(files[0], b"changed while the run starts")
    assert Fingerprints(tmp_path).video(video) == whole
    assert Fingerprints(tmp_path).video(video_of(files)) != whole


def test_video_file_and_mask(files: list[Path], tmp_path: Path) -> None:
    file = VideoFile(files[0])
    assert Fingerprints(tmp_path).video(Video("v", "c", [Frame(0, 0)], file=file)) == file_sha256(files[0])
    assert Fingerprints(tmp_path).masks([MaskFile(path) for path in files]) == [file_sha256(path) for path in files]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        Fingerprints(tmp_path).files([tmp_path / "gone.png"])
    with pytest.raises(UserError, match="is not a regular file"):
        file_sha256(tmp_path)


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SUTURE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("SUTURE_CACHE")
    assert cache_folder().name == "suture"
