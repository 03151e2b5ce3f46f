"""Which clips inputs mean, and how their results are called; and what is no input."""

import io
import os
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from predict_files import picture, write_images, write_model, write_sound, write_video
from rich.console import Console

from suture.core.errors import UserError
from suture.data.datasets import load_dataset
from suture.prediction.find_clips import find_clips, share_clips
from suture.prediction.predict import predict
from suture.prediction.prediction_settings import PredictionSettings
from suture.prediction.predictor import Predictor


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files that are only named, and one folder of real images."""
    for name in ("a/video.mp4", "b/video.mp4", "b/video.avi", "c/other.MKV", "c/notes.txt", "c/.hidden.mp4"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * (len(name) * 10))
    write_images(tmp_path / "frames", 3)
    return tmp_path


def names(clips: list) -> list[str]:
    return [clip.name for clip in clips]


def test_a_folder_gives_its_videos_and_its_images(tree: Path) -> None:
    clips = {clip.name: clip for clip in find_clips([tree])}
    assert sorted(clips) == ["a_video", "b_video_mp4", "frames", "other", "video_avi"]
    assert len(clips["frames"]) == 3
    assert clips["frames"].frame_name(2) == "frame2"
    assert clips["other"].frame_name(7) == "other__frame_000007"


def test_names_differ_and_tell_where_they_come_from(tree: Path) -> None:
    assert names(find_clips([tree / "a", tree / "c"])) == ["video", "other"]
    assert names(find_clips([f"{tree}/[ab]/*.mp4"])) == ["a_video", "b_video"]
    assert names(find_clips([f"{tree}/b/*"])) == ["video_avi", "video_mp4"]
    assert names(find_clips([tree / "a/video.mp4", f"{tree}/a/../a/*.mp4"])) == ["video"]


def test_images_by_name_are_one_clip(tree: Path) -> None:
    (clip,) = find_clips([f"{tree}/frames/frame[02].png"])
    assert clip.name == "frames"
    assert [path.name for path in clip.images] == ["frame0.png", "frame2.png"]
    (single,) = find_clips([tree / "frames/frame1.png"])
    assert single.name == "frame1"


def write_flat(folder: Path, *videos: str) -> Path:
    """Frames of several videos in one folder."""
    folder.mkdir(parents=True)
    for video in videos:
        for index in (2, 10):
            cv2.imwrite(str(folder / f"{video}_{index}.png"), picture(index))
    return folder


def test_a_folder_keeps_the_points_of_its_name(tmp_path: Path) -> None:
    """Given one after the other, the operations of two days would have had the same name."""
    for name in ("2024.05.01", "2024.05.02"):
        write_images(tmp_path / name, 2)
        assert names(find_clips([tmp_path / name])) == [name]
    assert names(find_clips([tmp_path])) == ["2024.05.01", "2024.05.02"]
    write_video(tmp_path / "2024.05.02.mp4")
    assert names(find_clips([tmp_path / "2024.05.02.mp4"])) == ["2024.05.02"]
    assert set(names(find_clips([tmp_path]))) == {"2024.05.01", "2024_05_02", "2024_05_02_mp4"}


def test_two_images_of_one_name_are_told_apart_by_a_glob(tmp_path: Path) -> None:
    """As of a dataset whose masks are told by their suffix: `dataset.yaml` is not read here, and cannot mend it."""
    for suffix in (".jpg", ".png"):
        write_images(tmp_path / "case", 2, suffix=suffix)
    with pytest.raises(UserError, match=r"frame0.jpg and frame0.png, .* give one kind alone .'.*/case/\*.png'"):
        find_clips([tmp_path])
    (clip,) = find_clips([f"{tmp_path}/case/*.jpg"])
    assert [image.name for image in clip.images] == ["frame0.jpg", "frame1.jpg"]


def test_names_tell_the_videos_of_one_folder_apart_as_in_a_dataset(tmp_path: Path, tree: Path) -> None:
    flat = write_flat(tmp_path / "flat", "caseA", "caseB")
    cv2.imwrite(str(flat / "still.png"), picture(0))
    (flat.parent / "dataset.yaml").write_text("videos: flat\nvideos_by: name")
    clips = find_clips([flat], videos_by="name")
    videos = {video.id: [frame.image for frame in video.frames] for video in load_dataset(tmp_path)}
    assert {clip.name: list(clip.images) for clip in clips} == videos
    assert [image.name for image in clips[0].images] == ["caseA_2.png", "caseA_10.png"]
    assert names(find_clips([flat])) == ["flat"]
    assert names(find_clips([f"{flat}/*_2.png"], videos_by="name")) == ["caseA_2", "caseB_2"]
    # Folders of frames, and video files, stay what they are.
    others = [tree / name for name in ("a", "b", "c", "frames")]
    assert names(find_clips(others, videos_by="name")) == names(find_clips(others))
    # What is given twice is one; what has the name of a folder is another.
    assert names(find_clips([flat, f"{flat}/../flat"], videos_by="name")) == ["caseA", "caseB", "still"]
    write_images(flat / "caseA")
    with pytest.raises(UserError, match="would have one name: rename one of them"):
        find_clips([flat], videos_by="name")


def test_a_model_tells_videos_apart_as_its_training_did(tmp_path: Path) -> None:
    """One clip of all would carry what smoothing keeps, and the view, from one video into the next."""
    flat = write_flat(tmp_path / "flat", "caseA", "caseB")
    by_name, by_folder = (
        Predictor(write_model(tmp_path / videos_by, videos_by=videos_by), "cpu") for videos_by in ("name", "folder")
    )

    def results(videos_by: Any, out: Path, model: Predictor) -> list[str]:
        settings = PredictionSettings(overlay=False, smooth=0.7, videos_by=videos_by)
        predict(model, [flat], out, settings, console=Console(quiet=True))
        return sorted(path.name for path in out.iterdir())

    assert results("trained", tmp_path / "1", by_name) == ["caseA", "caseB"]
    assert results("folder", tmp_path / "2", by_name) == ["flat"]
    assert results("trained", tmp_path / "3", by_folder) == ["flat"]
    assert results("name", tmp_path / "4", by_folder) == ["caseA", "caseB"]


def test_results_and_masks_are_not_taken_for_inputs(tree: Path) -> None:
    write_images(tree / "masks")
    assert "masks" not in names(find_clips([tree]))
    before = [len(clip.images) for clip in find_clips([tree])]
    for image in [*tree.rglob("*.png"), *tree.rglob("*.jpg")]:
        (image.parent / f"{image.stem}_mask.png").write_bytes(b"")  # beside its frame
    assert [len(clip.images) for clip in find_clips([tree])] == before
    assert "frames" not in names(find_clips([tree], leave_out=tree / "frames"))
    assert names(find_clips([tree / "masks"])) == ["masks"]
    (tree / "c/prediction.json").write_text("{}")  # an earlier output folder among the videos
    assert "other" not in names(find_clips([tree]))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("absent.mp4", "The input .*absent.mp4 does not exist"),
        ("*.mp4", r"The input .*\*\.mp4 does not exist"),
        ("empty", "empty holds neither videos nor images"),
    ],
)
def test_no_input(tmp_path: Path, given: str, sentence: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=sentence):
        find_clips([tmp_path / given])


def test_processes_share_the_clips(tree: Path) -> None:
    clips = find_clips([tree])
    for world in (1, 2, 3, 9):
        parts = [names(share_clips(clips, rank, world)) for rank in range(world)]
        assert sorted(name for part in parts for name in part) == sorted(names(clips))


BAD = {
    "sound": "holds no video, only sound or data",
    "zero": "holds no frames",
    "empty": "is not a video that can be read",
    "cut": "is not a video that can be read",
    "text": "is not a video that can be read",
    "folder": "is not a file",
    "pipe": "is not a file",
}


def write_bad(kind: str, folder: Path) -> Path:
    path = folder / f"{kind}.mp4"
    match kind:
        case "sound":
            write_sound(path)
        case "zero":
            write_video(path, frames=0)
        case "cut":
            path.write_bytes(write_video(folder / "whole.mp4").read_bytes()[:1500])
            (folder / "whole.mp4").unlink()
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.symlink_to(path)
        case _:
            path.write_bytes(b"" if kind == "empty" else b"Dear diary")
    return path


@pytest.mark.parametrize("kind", BAD)
def test_a_file_that_is_no_video(cpu: Predictor, tmp_path: Path, kind: str) -> None:
    path = write_bad(kind, tmp_path)
    with pytest.raises(UserError) as caught:
        predict(cpu, [path], tmp_path / "out", console=Console(quiet=True))
    assert BAD[kind] in str(caught.value) or "does not exist" in str(caught.value)
    assert str(path) in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_one_bad_file_does_not_stop_the_others(cpu: Predictor, tmp_path: Path) -> None:
    write_bad("sound", tmp_path)
    write_video(tmp_path / "good.mp4")
    said = io.StringIO()
    summary = predict(cpu, [tmp_path], tmp_path / "out", console=Console(file=said))
    assert summary.clips == 1
    assert len(summary.problems) == 1
    assert "only sound" in summary.problems[0]
    assert said.getvalue().count("only sound") == 1
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["good"]


def test_a_broken_frame_is_told_and_left_out(cpu: Predictor, tmp_path: Path) -> None:
    folder = write_images(tmp_path / "frames")
    (folder / "frame0.png").write_bytes(b"no picture")
    (folder / "frame3.png").write_bytes((folder / "frame3.png").read_bytes()[:300])
    said = io.StringIO()
    summary = predict(cpu, [folder], tmp_path / "out", console=Console(file=said, width=300))
    assert (summary.frames, len(summary.problems)) == (3, 2)
    assert "frames: 3 frames, " in said.getvalue()
    assert all(name in said.getvalue() for name in ("frame0.png", "frame3.png"))
    masks = sorted(path.name for path in (tmp_path / "out/frames/masks").iterdir())
    assert masks == ["frame1.png", "frame2.png", "frame4.png"]
    table = (tmp_path / "out/frames/frames.csv").read_text().splitlines()
    assert [bool(line.split(",")[-1]) for line in table[1:]] == [True, False, False, True, False]
    for path in (tmp_path / "out/frames").glob("*.*"):
        assert str(tmp_path) not in path.read_text()  # a path can name a patient
    again = predict(cpu, [folder], tmp_path / "out", console=Console(quiet=True))
    assert (again.skipped, again.problems) == (1, summary.problems)


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_a_video_that_stops_half_way(cpu: Predictor, tmp_path: Path, suffix: str) -> None:
    whole = write_video(tmp_path / f"whole{suffix}", frames=100, options={"movflags": "faststart"})
    content = whole.read_bytes()
    path = tmp_path / f"case{suffix}"
    path.write_bytes(content[: len(content) * 2 // 3])
    summary = predict(cpu, [path], tmp_path / "out", PredictionSettings(masks="video"), console=Console(quiet=True))
    assert 30 < summary.frames < 100
    assert any(f"{path.name} stops after {summary.frames} frames, about" in problem for problem in summary.problems)
    assert (tmp_path / "out/case/overlay.mp4").exists()


def test_damage_in_the_middle_keeps_numbers_and_times(cpu: Predictor, tmp_path: Path) -> None:
    """A frame that does not decode is all ignore in the video of masks, so that frame 9 stays frame 9."""
    from suture.data.video import VideoFile

    path = write_video(tmp_path / "case.mkv", frames=30, codec="mpeg4")
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 400] = bytes(np.random.default_rng(0).integers(0, 255, 400, np.uint8))
    path.write_bytes(content)
    summary = predict(cpu, [path], tmp_path / "out", PredictionSettings(masks="video"), console=Console(quiet=True))
    masks, video = VideoFile(tmp_path / "out/case/masks.mkv"), VideoFile(path)
    assert len(masks) == len(video)
    np.testing.assert_allclose(masks.times, video.times, atol=1e-3)
    good = len(video) - sum("does not decode" in problem for problem in summary.problems)
    assert len(VideoFile(tmp_path / "out/case/overlay.mp4")) == good == summary.frames


def test_no_frame_at_all(cpu: Predictor, tmp_path: Path) -> None:
    folder = write_images(tmp_path / "frames", 2)
    for path in folder.iterdir():
        path.write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"none of its 2 frames can be used; the first: .*frame0.png"):
        predict(cpu, [folder], tmp_path / "out", console=Console(quiet=True))
    assert not (tmp_path / "out").exists()
