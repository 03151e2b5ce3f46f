"""Started again, predicting goes on where it was; other results are not written over; several processes share."""

import io
import os
import platform
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from commands import started
from predict_files import picture, wait, write_images, write_video
from rich.console import Console

from suture.cli import main
from suture.core.errors import UserError
from suture.prediction import clip_files as clipfiles
from suture.prediction.predict import predict
from suture.prediction.prediction_settings import PredictionSettings
from suture.prediction.predictor import Predictor, PreparedBatch


class Counting(Predictor):
    """Counts the frames it looks at, and fails at the frame it is told to."""

    fails_at = -1
    looked = 0

    def begin(self, prepared: PreparedBatch, *rest: Any) -> Any:
        if self.looked == self.fails_at:
            raise RuntimeError("the power went")
        self.looked += len(prepared.frames)
        return super().begin(prepared, *rest)


def contents(folder: Path) -> dict[str, bytes]:
    files = {path: path for path in folder.rglob("*") if path.is_file()}
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def go(predictor: Predictor, given: Path, out: Path, **settings: Any) -> str:
    said = io.StringIO()
    predict(predictor, [given], out, PredictionSettings(**settings), console=Console(file=said, width=300))
    return said.getvalue()


@pytest.mark.parametrize("kind", ["images", "video", "video without overlay", "masks in a video", "smooth"])
def test_a_start_that_broke_off_is_gone_on_with(model: Path, cpu: Predictor, tmp_path: Path, kind: str) -> None:
    changed: dict[str, dict[str, Any]] = {
        "video without overlay": {"overlay": False},
        "masks in a video": {"masks": "video"},
        "smooth": {"smooth": 0.5},
    }
    settings = changed.get(kind, {})
    given = write_images(tmp_path / "case", 12) if kind == "images" else write_video(tmp_path / "case.mp4")
    go(cpu, given, tmp_path / "whole", **settings)
    predictor = Counting(model, "cpu")
    predictor.fails_at = 7
    with pytest.raises(RuntimeError, match="the power went"):
        go(predictor, given, tmp_path / "out", **settings)
    left = contents(tmp_path / "out/case")
    assert not {"prediction.json", "frames.csv", "overlay.mp4", "masks.mkv"} & set(left)
    predictor = Counting(model, "cpu")
    said = go(predictor, given, tmp_path / "out", **settings)
    begun_anew = kind in ("masks in a video", "smooth")
    done = sum(name.startswith("masks/") for name in left)
    if begun_anew:
        assert predictor.looked == 12
    else:
        assert 0 < done < 12
        assert predictor.looked < 12
        assert f"12 frames, {12 - predictor.looked} of them done before" in said
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_what_is_done_is_skipped_and_said(model: Path, tmp_path: Path) -> None:
    write_video(tmp_path / "videos/a.mp4")
    predictor = Counting(model, "cpu")
    go(predictor, tmp_path / "videos", tmp_path / "out")
    before = contents(tmp_path / "out")
    write_video(tmp_path / "videos/b.mp4")
    said = go(predictor, tmp_path / "videos", tmp_path / "out")
    assert "a: done before, skipped" in said
    assert predictor.looked == 24
    assert contents(tmp_path / "out").items() >= before.items()


def test_other_results_are_only_written_over_by_force(model: Path, cpu: Predictor, tmp_path: Path) -> None:
    given = write_images(tmp_path / "frames")
    go(cpu, given, tmp_path / "out")
    before = contents(tmp_path / "out")
    with pytest.raises(UserError, match=r"out/frames holds results of other settings \(flip\)"):
        go(Predictor(model, "cpu", flip=True), given, tmp_path / "out")
    with pytest.raises(UserError, match=r"\(overlay\)"):
        go(cpu, given, tmp_path / "out", overlay=False)
    write_images(given, 6)
    with pytest.raises(UserError, match=r"\(input\)"):
        go(cpu, given, tmp_path / "out")
    assert contents(tmp_path / "out") == before
    predict(cpu, [given], tmp_path / "out", force=True, console=Console(quiet=True))
    assert len(list((tmp_path / "out/frames/masks").iterdir())) == 6


@pytest.mark.parametrize("changed", [[], ["--view", "none"]])
def test_two_at_once_do_not_write_into_one_folder(model: Path, tmp_path: Path, changed: list[str]) -> None:
    """The second would mix masks of its own among those of the first, but may take its next video."""
    write_video(tmp_path / "videos/a.mp4", 60)
    write_video(tmp_path / "videos/b.mp4", 3)
    out = tmp_path / "out"
    words = ["suture", "predict", model, tmp_path / "videos", "-o", out, "--no-overlay"]
    errors = [tmp_path / name for name in ("first", "second")]
    with started(*words, said=errors[0], printed=tmp_path / "printed") as first:
        wait((out / "a/.lock").exists)
        os.kill(first.pid, signal.SIGSTOP)
        with started(*words, *changed, said=errors[1], printed=tmp_path / "printed") as second:
            second.join()
        os.kill(first.pid, signal.SIGCONT)
        first.join()
    messages = [path.read_text() for path in errors]
    assert messages[1].startswith(f"a: {out}/a is in use by process {first.pid} on {platform.node()}: wait for it")
    assert "b: 3 frames" in messages[1]
    assert ("b: done before" in messages[0], "b holds results of other settings" in messages[0]) == (
        not changed,
        bool(changed),
    )
    assert (first.exitcode, second.exitcode) == (int(bool(changed)), 1)
    for name, frames in (("a", 60), ("b", 3)):
        assert set(os.listdir(out / name)) == {"masks", "frames.csv", "prediction.json"}
        assert len(os.listdir(out / name / "masks")) == frames


@pytest.mark.parametrize("force", [False, True])
def test_nothing_is_written_among_files_of_others(cpu: Predictor, tmp_path: Path, force: bool) -> None:
    """The mask that somebody painted would be deleted by force, and any other file be mixed up with the results."""

    def go_into(out: Path) -> None:
        predict(cpu, [frames], out, force=force, console=Console(quiet=True))

    frames = write_images(tmp_path / "frames")
    painted = tmp_path / "out/frames/masks/frame0.png"
    write_images(painted.parent, 1)
    before = contents(tmp_path)
    with pytest.raises(UserError, match="out holds files but no results of a prediction, expected a new or empty"):
        go_into(tmp_path / "out")
    write_images(tmp_path / "other")
    predict(cpu, [tmp_path / "other"], tmp_path / "new", console=Console(quiet=True))
    (tmp_path / "new/frames").mkdir()
    (tmp_path / "new/notes.txt").write_text("mine")
    go_into(tmp_path / "new")  # of results, with an empty folder and a note beside them
    shutil.copytree(tmp_path / "new/other", tmp_path / "out/other")
    with pytest.raises(UserError, match=r"out/frames holds files but no results of a prediction.*: rename it, or give"):
        go_into(tmp_path / "out")
    assert contents(tmp_path).items() >= before.items()
    assert (tmp_path / "new/notes.txt").read_text() == "mine"


def test_a_picture_that_finds_no_room_ends_it_with_the_reason(cpu: Predictor, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (200, 200, 3), np.uint8)
    (tmp_path / "frames").mkdir()
    cv2.imwrite(str(tmp_path / "frames/0.png"), noise)
    cv2.imwrite(str(tmp_path / "frames/1.png"), noise)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(
            UserError, match=r"out/frames cannot be written \(File too large\): .* start again to go on"
        ):
            go(cpu, tmp_path / "frames", tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not [path for path in (tmp_path / "out/frames").rglob("*") if path.suffix == ".jpg"]


def test_a_place_that_cannot_be_written_to_is_one_sentence(
    model: Path, cpu: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    given = write_images(tmp_path / "frames")
    with pytest.raises(UserError, match=r"The output .*frame0.png is a file, expected a folder"):
        go(cpu, given, given / "frame0.png")
    monkeypatch.setattr(clipfiles, "write_mask", refused)
    with pytest.raises(UserError, match=r"\(Permission denied\): give a folder that you may write to, and start again"):
        go(cpu, given, tmp_path / "out")


def test_other_frames_of_the_same_names_and_sizes_are_told_apart(cpu: Predictor, tmp_path: Path) -> None:
    """As those in uncompressed files are: the one video's masks must not pass for the other's."""
    (one,) = write_images(tmp_path / "a/frames", 1, suffix=".bmp").iterdir()
    other = tmp_path / "b/frames" / one.name
    other.parent.mkdir(parents=True)
    cv2.imwrite(str(other), picture(9)[..., ::-1])
    assert other.stat().st_size == one.stat().st_size
    go(cpu, one, tmp_path / "out")
    assert "skipped" in go(cpu, one, tmp_path / "out")
    with pytest.raises(UserError, match=r"\(input\)"):
        go(cpu, other, tmp_path / "out")


def test_no_prediction_goes_among_the_videos_of_a_dataset(cpu: Predictor, tmp_path: Path) -> None:
    (tmp_path / "dataset.yaml").write_text("videos: videos\n")
    given = write_video(tmp_path / "videos/case.mp4", 3)
    with pytest.raises(UserError, match=r"lies in .*videos, where .*dataset\.yaml has its videos"):
        go(cpu, given, tmp_path / "videos/out")
    assert [path.name for path in (tmp_path / "videos").iterdir()] == ["case.mp4"]
    go(cpu, given, tmp_path / "out")


def test_an_interrupt_ends_it_at_once(model: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    given = write_video(tmp_path / "case.mp4", 600)
    words = ["suture", "predict", str(model), str(given), "-o", str(tmp_path / "out")]
    masks = tmp_path / "out/case/masks"
    with started(*words, said=tmp_path / "said", **environment) as process:
        wait(lambda: masks.exists() and any(masks.iterdir()))
        os.kill(process.pid, signal.SIGINT)
        process.join(60)
        assert process.exitcode == 130
    assert (tmp_path / "said").read_text().endswith(f"Stopped; to go on: {shlex.join(words)}\n")
    left = {path.name for path in (tmp_path / "out/case").rglob("*") if path.suffix != ".png"}
    assert left == {"masks", ".journal.jsonl", ".lock"}  # nothing half-written, and what is done is known


@pytest.fixture
def environment() -> dict[str, str]:
    return {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def test_two_processes_share_the_files(
    model: Path, cpu: Predictor, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Real ones, started by torchrun. A file that cannot be read does not make one end the other."""
    for name in "abcd":
        write_video(tmp_path / f"videos/{name}.mp4", 8)
    (tmp_path / "videos/broken.mp4").write_bytes(b"no video" * 1000)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "suture"]
    result = subprocess.run(
        [*command, "predict", str(model), str(tmp_path / "videos"), "-o", str(tmp_path / "two")],
        capture_output=True,
        text=True,
        timeout=200,
        env=os.environ | environment,
    )
    assert result.returncode == 1
    assert result.stdout.count("(32 frames of 4 inputs, 1 problem)") == 1, result.stderr[-3000:]
    assert all(result.stderr.count(f"{name}: 8 frames") == 1 for name in "abcd")
    assert result.stderr.count("broken: ") == 1
    (tmp_path / "videos/broken.mp4").unlink()
    go(cpu, tmp_path / "videos", tmp_path / "one")
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def test_tasks_of_slurm_share_the_files(cpu: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        write_video(tmp_path / f"videos/{name}.mp4", 2)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    done = []
    for task in ("0", "1"):
        monkeypatch.setenv("SLURM_PROCID", task)
        said = go(cpu, tmp_path / "videos", tmp_path / "out")
        assert "skipped" not in said
        done += [line[0] for line in said.splitlines()]
    assert sorted(done) == ["a", "b", "c"]


def test_a_killed_process_is_gone_on_with(
    model: Path, cpu: Predictor, tmp_path: Path, environment: dict[str, str]
) -> None:
    given = write_video(tmp_path / "case.mp4", 150)
    words = ["suture", "predict", model, given, "-o", tmp_path / "out"]
    masks = tmp_path / "out/case/masks"
    with started(*words, said=tmp_path / "said", **environment) as process:
        wait(lambda: masks.exists() and len(list(masks.iterdir())) > 10)
        process.kill()
    assert not (tmp_path / "out/case/prediction.json").exists()
    predictor = Counting(model, "cpu")
    said = go(predictor, given, tmp_path / "out")
    assert 0 < predictor.looked < 150
    assert "of them done before" in said
    go(cpu, given, tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def suture(monkeypatch: pytest.MonkeyPatch, *words: Any) -> int:
    """The exit code of a command."""
    monkeypatch.setattr(sys, "argv", ["suture", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_exit_codes(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = write_images(tmp_path / "frames")
    out = tmp_path / "out"
    assert suture(monkeypatch, "predict", model, frames, "-o", out, "--device", "cpu") == 0
    assert f"Predicted: {out} (5 frames of 1 input)" in capsys.readouterr().out
    assert suture(monkeypatch, "predict", model, frames, "-o", out, "--device", "cpu") == 0
    following = f"Next: suture select {model} --budget 20 -o frames --for png\n"
    assert capsys.readouterr().out == f"Nothing left to predict: 1 input done before ({out})\n{following}"
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video")
    assert suture(monkeypatch, "predict", model, frames, str(broken), "-o", out, "--device", "cpu") == 1
    said = "0 frames of 0 inputs, 1 input done before, 1 problem"
    assert capsys.readouterr().out.endswith(f"Predicted: {out} ({said})\n{following}")
    (frames / "frame2.png").write_bytes(b"no picture")
    shutil.rmtree(out)
    assert suture(monkeypatch, "predict", model, frames, "-o", out, "--device", "cpu", "--masks", "none") == 1
    assert "frame2.png" in capsys.readouterr().err
    assert sorted(path.name for path in (out / "frames").iterdir()) == ["frames.csv", "overlay", "prediction.json"]
    for words, sentence in (
        ([model, "absent.mp4"], "absent.mp4 does not exist"),
        (["absent", frames], "absent does not exist: expected a run folder, a model.safetensors"),
        ([model, frames, "--scales", "big"], "--scales is big"),
        ([model, frames, "--view", "1,2"], "--view is 1,2"),
        ([model, frames, "--smooth", "2"], "smooth is 2"),
    ):
        assert suture(monkeypatch, "predict", *words, "-o", tmp_path / "none") == 2
        assert sentence in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
