"""The generated folder on disk."""

import csv
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
import yaml

from suture.core.errors import UserError
from suture.data.synthetic.render_video import render_video
from suture.data.synthetic.scenario import CLASSES, OUTSIDE, SyntheticSettings, plan_videos
from suture.data.synthetic.write_synthetic import write_synthetic

SMALL = SyntheticSettings(cases=3, frames=12, shots=2, width=64, height=48)


@pytest.fixture(scope="module")
def mp4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic(tmp_path_factory.mktemp("synthetic") / "mp4", SMALL, progress=False)


def read(path: Path) -> np.ndarray:
    image = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    assert image is not None
    return image


def test_dataset_file_names_the_files_that_are_there(mp4: Path) -> None:
    facts = yaml.safe_load((mp4 / "dataset.yaml").read_text())
    videos = [video for case in facts["cases"].values() for video in case]
    assert facts["format"] == 1
    assert facts["cases"]["case01"] == ["case01a", "case01b"]
    assert sorted(path.stem for path in (mp4 / facts["videos"]).iterdir()) == sorted(videos)
    assert [case for part in facts["split"].values() for case in part] == sorted(facts["cases"])
    assert set(facts["view"]) == set(videos)
    assert {c["value"]: c["name"] for c in facts["classes"]} == {c.value: c.name for c in CLASSES} | {
        OUTSIDE: "outside"
    }
    assert len({tuple(c.color) for c in CLASSES}) == len(CLASSES)
    expected = {f"{video}__frame_{i:06d}.png" for video in videos for i in range(SMALL.frames)}
    assert {path.name for path in (mp4 / facts["masks"]).iterdir()} == expected
    with (mp4 / facts["exclude"]).open() as file:
        rows = list(csv.DictReader(file))
    assert {row["video"] for row in rows} <= set(videos)
    assert [(int(row["first"]), int(row["last"])) for row in rows] == list(plan_videos(SMALL)[-1].excluded)


def test_mp4_frames_are_the_rendered_ones(mp4: Path) -> None:
    video = plan_videos(SMALL)[2]
    with av.open(mp4 / "videos" / f"{video.id}.mp4") as file:
        decoded = list(file.decode(video=0))
    assert (decoded[0].colorspace, decoded[0].color_range) == (1, 1)
    assert [round(frame.time * SMALL.fps) for frame in decoded] == [*range(SMALL.frames)]
    for i, (rgb, mask) in enumerate(render_video(video)):
        back = decoded[i].reformat(format="rgb24", src_colorspace="ITU709", src_color_range="MPEG").to_ndarray()
        assert np.abs(back.astype(int) - rgb).mean() < 8
        assert np.abs((back.astype(int) - rgb).mean((0, 1))).max() < 3
        assert np.array_equal(read(mp4 / "masks" / f"{video.id}__frame_{i:06d}.png"), mask)


def test_png_frames_carry_their_numbers_and_any_size_goes(tmp_path: Path) -> None:
    settings = SMALL.model_copy(update={"width": 51, "height": 43})
    out = write_synthetic(tmp_path / "new" / "png", settings, "png", progress=False)
    for video in plan_videos(settings):
        names = [f"frame_{number:06d}.png" for number in range(SMALL.frames)]
        assert sorted(path.name for path in (out / "videos" / video.id).iterdir()) == names
        for name, (rgb, mask) in zip(names, render_video(video), strict=True):
            assert np.array_equal(read(out / "videos" / video.id / name)[..., ::-1], rgb)
            assert np.array_equal(read(out / "masks" / f"{video.id}__{name}"), mask)


def test_two_processes_write_the_same_bytes(mp4: Path, tmp_path: Path) -> None:
    out = write_synthetic(tmp_path / "out", SMALL, workers=2, progress=False)
    files = sorted(path.relative_to(mp4) for path in mp4.rglob("*") if path.is_file())
    assert sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file()) == files
    assert all((out / path).read_bytes() == (mp4 / path).read_bytes() for path in files)


def test_mistakes_are_one_sentence_and_write_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="51x43 has an odd side"):
        write_synthetic(tmp_path / "out", SMALL.model_copy(update={"width": 51, "height": 43}))
    assert not list(tmp_path.iterdir())
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match="already there"):
        write_synthetic(tmp_path / "out", SMALL)
    assert not list((tmp_path / "out").iterdir())


def test_a_failure_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("suture.data.synthetic.write_synthetic._write_png", fail)
    with pytest.raises(OSError, match="disk full"):
        write_synthetic(tmp_path / "out", SMALL, progress=False)
    assert not list(tmp_path.iterdir())
