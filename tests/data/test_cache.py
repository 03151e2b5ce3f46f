"""Measurements are found again as long as their files are the same; then nothing is decoded."""

import os
from pathlib import Path

import numpy as np
import pytest

from suture.checks.check import check
from suture.data import video as video_module
from suture.data.cache import CachedArrays
from suture.data.datasets import load_dataset
from suture.data.shots import find_shots
from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic
from suture.data.video import DecodedFrame, VideoFile


def settle(*files: Path) -> None:
    for file in files:
        os.utime(file, (1, 1))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUTURE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(video_module, "MIN_CACHED_BYTES", 0)
    settings = SyntheticSettings(cases=2, frames=16, shots=2, width=64, height=48)
    write_synthetic(tmp_path / "data", settings, progress=False)
    settle(*(tmp_path / "data/videos").iterdir())
    return tmp_path / "data"


def test_arrays_are_lost_with_a_change_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUTURE_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "a"
    file.write_bytes(b"one")
    CachedArrays([file], "kind").save({"values": np.arange(3)})
    assert CachedArrays([file], "kind").load() is None, "a file that was just written may still change"
    settle(file)
    CachedArrays([file], "kind").save({"values": np.arange(3)})
    assert CachedArrays([file], "other kind").load() is None
    found = CachedArrays([file], "kind").load()
    assert found is not None
    assert found["values"].tolist() == [0, 1, 2]
    file.write_bytes(b"other")
    assert CachedArrays([file], "kind").load() is None
    assert CachedArrays([tmp_path / "absent"], "kind").load() is None


def test_a_second_command_decodes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "dataset.yaml").write_text((root / "dataset.yaml").read_text().partition("view:")[0] + "view: auto\n")
    first = check(root, progress=False, workers=1)
    shots = {video.id: find_shots(video).starts for video in load_dataset(root)}
    monkeypatch.setattr("suture.checks.check._sample", lambda dataset: {video.id: [] for video in dataset})
    monkeypatch.setattr(DecodedFrame, "planes", pytest.fail)
    monkeypatch.setattr(DecodedFrame, "rgb", pytest.fail)
    monkeypatch.setattr(video_module, "_read_index", pytest.fail)
    again = check(root, progress=False, workers=1)
    assert again.summary == first.summary
    assert again.problems == first.problems
    assert {video.id: find_shots(video).starts for video in load_dataset(root)} == shots


def test_pieces_begin_at_key_frames(root: Path) -> None:
    video = VideoFile(next((root / "videos").glob("*.mp4")))
    object.__setattr__(video._index, "keys", np.array([0, 5, 7, 12]))
    assert [list(piece) for piece in video.pieces([1, 2, 5, 6, 7, 13], 3)] == [[1, 2, 5, 6], [7, 13]]
    assert video.near_keys([6, 8, 15]) == [5, 7, 12]
    assert video.near_keys([6, 5]) == [6, 5]
