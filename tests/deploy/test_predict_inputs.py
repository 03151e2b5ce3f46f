"""Which clips inputs mean, and how their results are called; and what is no input."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
from predict_files import write_images, write_sound, write_video
from rich.console import Console

from suture.data.sources import load_dataset
from suture.deploy.asked import Settings
from suture.deploy.inputs import find_clips, shared_out
from suture.deploy.predict import predict
from suture.deploy.predictor import Predictor
from suture.errors import UserError


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
    assert sorted(clips) == ["frames", "other", "video", "video_avi", "video_mp4"]
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


def test_what_a_dataset_excludes_is_predicted_like_all_else(tmp_path: Path, cpu: Predictor) -> None:
    """As docs/predict.md says: however its files are given, a video's results are the same."""
    data, out = tmp_path / "data", tmp_path / "out"
    write_images(data / "frames", 3)
    (data / "dataset.yaml").write_text("videos: frames\nexclude: exclude.csv\n")
    (data / "exclude.csv").write_text("video,first,last,reason\nframes,1,1,out of body\n")
    assert load_dataset(data).videos[0].usable == [0, 2]
    summary = predict(cpu, [data], out, Settings(overlay=False))
    assert (summary.frames, summary.problems) == (3, [])
    assert sorted(path.name for path in out.rglob("*.png")) == ["frame0.png", "frame1.png", "frame2.png"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("absent.mp4", "The input .*absent.mp4 does not exist"),
        ("*.mp4", r"The input .*\*\.mp4 fits no file"),
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
        parts = [names(shared_out(clips, rank, world)) for rank in range(world)]
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


def test_why_nothing_can_be_predicted_is_told_once(cpu: Predictor, tmp_path: Path) -> None:
    sound, text = write_bad("sound", tmp_path), write_bad("text", tmp_path)
    for given, ends in (([sound], "only sound"), ([sound, text], "None of the 2 inputs can be used")):
        told = io.StringIO()
        with pytest.raises(UserError, match=ends) as caught:
            predict(cpu, given, tmp_path / "out", console=Console(file=told, width=300))
        assert (told.getvalue() + str(caught.value)).count("only sound") == 1


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
    summary = predict(cpu, [path], tmp_path / "out", Settings(masks="video"), console=Console(quiet=True))
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
    summary = predict(cpu, [path], tmp_path / "out", Settings(masks="video"), console=Console(quiet=True))
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
