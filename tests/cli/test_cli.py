"""The command line of the data commands: what is printed, and the exit codes."""

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import pytest
from rich.console import Console

from suture.cli import main
from suture.cli.terminal import resume_command
from suture.core.errors import UserError


def suture(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """The exit code of a command."""
    monkeypatch.setattr(sys, "argv", ["suture", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two videos of three frames, with masks."""
    for number, name in enumerate(("videos/a", "videos/b")):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        masks = tmp_path / "masks" / folder.name
        masks.mkdir(parents=True)
        for index in range(3):
            frame = np.random.default_rng([number, index]).integers(0, 255, (48, 64, 3), np.uint8)
            cv2.imwrite(str(folder / f"{index}.png"), frame)
            cv2.imwrite(str(masks / f"{index}.png"), np.tri(48, 64, dtype=np.uint8))
    return tmp_path


def test_a_mistake_is_one_sentence_as_it_is_with_exit_code_2(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "dataset.yaml").write_text("videos: videos\nview: [1, 2]\n")
    assert suture(monkeypatch, "check", str(root)) == 2
    said = capsys.readouterr()
    assert not said.out
    assert "[x, y, w, h]" in said.err  # which Rich would take for markup
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err
    assert suture(monkeypatch, "check", str(root / "[/none]")) == 2
    assert "[/none] does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("synthetic FILE/made", "cannot be read or written (Not a directory): check the path"),
        ("train ROOT --preset demo -o FILE/run", "cannot be read or written (Not a directory): check the path"),
        ("synthetic ROOT/made --frames 3", "make no video: frames: input should be greater than or equal to 4."),
        ("synthetic ROOT/made --frames 5", "make no video: frames is 5, expected at least 4 for each of the 3 shots."),
    ],
)
def test_what_the_system_or_a_model_refuses_is_one_sentence_too(
    words: str, sentence: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "file").write_text("")
    given = [word.replace("ROOT", str(root)).replace("FILE", str(root / "file")) for word in words.split()]
    assert suture(monkeypatch, *given) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert told.startswith("error: ")
    assert sentence in told


def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        assert suture(monkeypatch, "check", str(root), "--write") == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert f"error: The disk is full ({root / 'dataset.yaml'}): make room, then" in capsys.readouterr().err
    assert sorted(path.name for path in root.iterdir()) == ["masks", "videos"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("check . --pictures there.onnx", "there.onnx is there and not an empty folder: give a new one"),
        ("check nowhere", "nowhere does not exist: expected a folder of videos"),
        ("select nowhere", "nowhere does not exist: expected a folder of videos"),
        ("train . -o there.onnx", "The output there.onnx is a file, expected a folder: give another."),
        ("train nowhere", "nowhere does not exist: expected a config file"),
        ("train . --set methd.train.steps=5", "the command line: there is no setting methd (did you mean method?)."),
        ("train . --preset dmo", "the command line: preset: there is no 'dmo' (did you mean demo?); the"),
        ("train . --preset demo --set model.weights=x.pth --set data.size=8", "the command line: data.size is 8"),
        ("evaluate nowhere", "nowhere does not exist: expected a run folder"),
        ("report . -o .", ". is a folder: give the report a file name, such as report.html"),
        ("report . --figures there.onnx", "there.onnx is there and not an empty folder: give a new one"),
        ("report . --videos nowhere", "nowhere does not exist: expected videos to show"),
        ("report . nowhere", "nowhere does not exist: expected one run folder"),
        ("export nowhere", "nowhere does not exist: expected the folder of a finished run"),
        ("export . --frame big", "--frame is big"),
        ("export . -o x.pt", "--output is x.pt, expected a name that ends in .onnx, or in .md for the card alone"),
        ("export . --dynamic --frame 64x64", "--dynamic leaves the size of the frames open"),
        ("export . --frame 64x64 --view 0,0,64,65", "--view is 0,0,64,65, expected a rectangle within the frames"),
        ("predict nowhere x.mp4", "nowhere does not exist: expected a run folder"),
        ("predict . nowhere.mp4 -o out", "The input nowhere.mp4 does not exist"),
        ("predict . . -o out --scales big", "--scales is big"),
        ("predict . . -o out --scales 1,9", "scales are [1.0, 9.0], expected numbers from 0.25 to 4"),
        ("predict . . -o out --view 1,2", "--view is 1,2, expected trained, auto, none or x,y,w,h"),
        ("predict . . -o out --smooth 2", "smooth is 2.0, expected a number from 0 to below 1"),
        ("predict . . -o there.onnx", "The output there.onnx is a file, expected a folder"),
        ("compare . -o there.onnx", "The output there.onnx is a file, expected a folder: give another."),
        ("compare nowhere", "nowhere does not exist: expected a comparison file"),
    ],
)
def test_a_mistake_in_the_options_is_reported(
    words: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there.onnx").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert suture(monkeypatch, *words.split()) == 2
    assert f"error: {sentence}" in capsys.readouterr().err


def test_help_status_and_doctor(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suture(monkeypatch, "help", "check") == 0
    assert "bool" not in capsys.readouterr().out
    assert suture(monkeypatch, "doctor", "--json") == 0
    assert {"device", "memory", "torch"} <= json.loads(capsys.readouterr().out).keys()
    (root / "dataset.yaml").write_text("videos: videos\n")
    assert suture(monkeypatch, "status", str(root), "--quiet") == 0
    said = capsys.readouterr()
    assert said.out.startswith("2 videos, 6 frames, 0 masks\nNext: suture select ")
    assert not said.err


def test_a_misspelt_path_is_corrected(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suture(monkeypatch, "check", str(root / "vidoes")) == 2
    assert "vidoes does not exist (did you mean videos?): " in capsys.readouterr().err
    with pytest.raises(UserError):  # --debug, anywhere on the line, shows the traceback
        suture(monkeypatch, "check", str(root / "vidoes"), "--debug")


COMMANDS_WITHOUT_TORCH = (
    "--help",
    "--version",
    "check nowhere",
    "train . --preset dmo",
    "report . -o .",
    "export . --dynamic --frame 64x64",
    "predict . . -o out --smooth 2",
    "compare nowhere.yaml",
)


def test_mistakes_are_reported_before_torch_is_imported(tmp_path: Path) -> None:
    code = (
        "import contextlib, sys\n"
        "from suture.cli import main\n"
        f"for words in {COMMANDS_WITHOUT_TORCH}:\n"
        "    sys.argv = ['suture', *words.split()]\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        main()\n"
        "    assert not {'torch', 'lightning'} & {*sys.modules}, words\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_write_drafts_and_then_checks(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suture(monkeypatch, "check", str(root), "--write") == 0  # nothing is wrong with the data
    said = capsys.readouterr()
    assert "Drafted" in said.err
    assert "meaning is not stated" in " ".join(said.out.split())
    assert suture(monkeypatch, "check", str(root)) == 2  # nobody has said what unpainted pixels mean
    file = root / "dataset.yaml"
    file.write_text(file.read_text().replace("# unpainted:", "unpainted:"))
    assert suture(monkeypatch, "check", str(root)) == 0
    before = file.read_text()
    assert suture(monkeypatch, "check", str(root), "--write") == 2
    assert "--force" in capsys.readouterr().err
    assert file.read_text() == before


def test_whether_a_folder_holds_several_videos_is_asked_until_it_is_answered(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing else that is found says that all became one video."""
    for video in ("a", "b"):
        for image in (root / "videos" / video).iterdir():
            image.rename(root / "videos" / f"{video}_{image.name}")
        (root / "videos" / video).rmdir()
    for words in (["--write"], []):
        suture(monkeypatch, "check", str(root), *words)
        assert "The images of a folder may be of several operations" in capsys.readouterr().out
    file = root / "dataset.yaml"
    drafted = file.read_text()
    for answer in ("folder", "name"):
        file.write_text(drafted.replace("# videos_by: name", f"videos_by: {answer}"))
        suture(monkeypatch, "check", str(root), "--write", "--force")
        assert "several operations" not in capsys.readouterr().out
    suture(monkeypatch, "check", str(root))
    assert "names of images: a (3 frames) and b (3 frames)" in " ".join(capsys.readouterr().out.split())


def test_a_wrong_option_of_the_source_is_told_before_anything_is_drafted(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suture(monkeypatch, "check", str(root), "--write", "--option", "masks") == 2
    assert "the command line: found 'masks', expected" in capsys.readouterr().err
    assert not (root / "dataset.yaml").exists()


def test_first_findings_are_told_of_many_frames_only(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "dataset.yaml").write_text("videos: videos\n")
    assert suture(monkeypatch, "check", str(root)) == 2
    said = capsys.readouterr()
    assert (said.out + said.err).count("The folder holds masks") == 1
    monkeypatch.setattr("suture.checks.check.MIN_QUICK_CHECK_FRAMES", 5)
    assert suture(monkeypatch, "check", str(root)) == 2
    assert "Quick check of 6 of 6 frames" in capsys.readouterr().err


def test_write_fails_where_something_is_wrong_with_the_data(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "masks/a/0.png").write_bytes(b"no image")
    assert suture(monkeypatch, "check", str(root), "--write") == 2
    assert (root / "dataset.yaml").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_is_asked_to_end_says_how_to_go_on(
    number: signal.Signals, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        try:
            signal.raise_signal(number)
        finally:
            if number == signal.SIGTERM:  # a second one, while it ends
                signal.raise_signal(number)

    before = signal.getsignal(number)

    monkeypatch.setattr("suture.data.datasets.load_dataset", interrupted)
    spaced = (root / "videos").rename(root / "my videos")
    assert suture(monkeypatch, "check", str(spaced)) == 128 + number
    assert signal.getsignal(number) is before
    assert capsys.readouterr().err.strip() == f"Stopped; to go on: suture check '{spaced}'"


def test_an_export_says_what_it_is_doing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes six seconds for the smallest of models."""
    shown: list[str] = []

    @contextmanager
    def status(_: Console, what: str) -> Iterator[None]:
        shown.append(what)
        yield
        shown.remove(what)

    def export(*_: object, **__: object) -> None:
        assert shown == ["Exporting, and comparing with PyTorch …"]
        raise UserError("Enough.")

    monkeypatch.setattr("suture.cli.terminal.err", Console(force_terminal=True))
    monkeypatch.setattr(Console, "status", status)
    monkeypatch.setattr("suture.deployment.export.export_run", export)
    assert suture(monkeypatch, "export", str(tmp_path)) == 2


def test_a_prediction_that_was_forced_goes_on_without_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["suture", "predict", "run", "a.mp4", "-o", "out", "--force"])
    assert resume_command() == "suture predict run a.mp4 -o out"
    monkeypatch.setattr(sys, "argv", ["suture", "check", "videos", "--write", "--force"])
    assert resume_command() == "suture check videos --write --force"


def test_selecting_says_what_was_not_read_and_that_there_are_no_more(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "exclude.csv").write_text("video,first,last,reason\na,0,0,out of body\n")
    (root / "dataset.yaml").write_text("videos: videos\n")
    assert suture(monkeypatch, "select", str(root), "--budget", "9", "-o", str(root.with_name("label"))) == 0
    said = capsys.readouterr()
    assert "exclude.csv is not read" in said.err
    assert "The folder holds masks, but dataset.yaml does not define their values" in said.err
    assert "6 frames of 2 videos" in said.out
    assert "; there are no more" in said.out


def test_selecting_a_list_says_how_many_of_its_frames_are_excluded(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "exclude.csv").write_text("video,first,last,reason\na,0,1,out of body\n")
    (root / "dataset.yaml").write_text("videos: videos\nexclude: exclude.csv\n")
    wanted = root / "unsure.txt"
    wanted.write_text("a 0\na 1\na 2\nb 0\n")
    assert suture(monkeypatch, "select", str(root), "--list", str(wanted), "-o", str(root.with_name("listed"))) == 0
    told = capsys.readouterr().out.splitlines()[0]
    assert told.startswith("2 frames of 2 videos in ")
    assert told.endswith(f"; 2 frames of {wanted} left out, as excluded")


def test_selecting_a_list_says_how_many_of_its_frames_have_a_mask(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two masks of one frame are an error."""
    text = "videos: videos\nmasks: masks\nclasses: [{name: tool, value: 1}]\nunpainted: background\n"
    (root / "dataset.yaml").write_text(text)
    (root / "masks/b/1.png").unlink()
    wanted = root / "unsure.txt"
    wanted.write_text("a 0\nb 1\n")
    assert suture(monkeypatch, "select", str(root), "--list", str(wanted), "-o", str(root.with_name("again"))) == 0
    told, after = capsys.readouterr().out.splitlines()
    assert told.endswith("; 1 frame with a mask already: a new mask must replace it")
    assert after.endswith(f" into {root / 'masks'}")


def test_selecting_sends_masks_to_where_the_others_are(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "masks").rename(root / "drawn")
    (root / "drawn/b/1.png").unlink()
    text = "videos: videos\nmasks: drawn\nclasses: [{name: tool, value: 1}]\nunpainted: background\n"
    (root / "dataset.yaml").write_text(text)
    assert suture(monkeypatch, "select", str(root), "--budget", "1", "-o", str(root.with_name("more"))) == 0
    assert capsys.readouterr().out.endswith(f" into {root / 'drawn'}\n")
