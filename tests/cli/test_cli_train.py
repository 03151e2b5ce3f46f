"""`suture train` and `suture evaluate` as a user runs them: real processes, killed, started again, misused."""

import io
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from commands import started
from rich.console import Console
from typer.testing import CliRunner

from suture.cli import app, main
from suture.core.errors import UserError
from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic
from suture.methods.method import methods
from suture.training.config import load_config
from suture.training.dataset_status import dataset_status
from suture.training.presets import presets
from suture.training.run_folder import read_curve
from suture.training.train import Run, train

SETTINGS = {
    "method": "pgvcl",
    "data.size": "32",
    "data.labelling.every": "4",
    "model.architecture": "pspnet",
    "model.encoder": "tu-test_resnet",
    "model.weights": "null",
    "compute.accelerator": "cpu",
    "compute.checkpoint_every": "1",
    "compute.log_every": "1",
    "method.pretrain.steps": "3",
    "method.pretrain.batch": "4",
    "method.contrast.steps": "3",
    "method.contrast.hidden": "16",
    "method.contrast.channels": "8",
    "method.finetune.steps": "3",
    "method.finetune.batch": "4",
}
SET = [f"{key}={value}" for key, value in SETTINGS.items()]
OPTIONS = [part for setting in SET for part in ("--set", setting)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "operations"
    settings = SyntheticSettings(cases=4, frames=12, width=64, height=64)
    return write_synthetic(folder, settings, container="png", progress=False)


@pytest.fixture(scope="module")
def trained(dataset: Path) -> tuple[Path, str, str]:
    """The run of `suture train DATASET` without a file, killed in its third stage and started again; its output."""
    folder = dataset.parent
    words = ["train", dataset.name, *OPTIONS]
    run = folder / "runs/operations-pgvcl-0"
    with started("suture", *words, said=folder / "said", folder=folder) as first:
        deadline = time.monotonic() + 120
        while not (run / "stages/3-contrast/last.ckpt").exists():
            assert first.is_alive(), (folder / "said").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        first.kill()
    command = [sys.executable, "-m", "suture", *words]
    environment = os.environ | {"COLUMNS": "100"}
    again = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
    assert again.returncode == 0, again.stderr
    return run, again.stdout, again.stderr


def test_a_dataset_is_enough_and_a_killed_run_goes_on(
    trained: tuple[Path, str, str], dataset: Path, tmp_path: Path
) -> None:
    run, out, err = trained
    assert "stage 3 of 4: contrast goes on at step" in err
    assert "stage 4 of 4: finetune" in err
    assert "stage 1 of 4" not in err
    assert "test, validation: new videos" in out
    assert "completion" in out
    assert out.count("Scores rest on little: new videos (test) on 12 frames of 1 video, ") == 1
    assert f"Run: {run.relative_to(dataset.parent)}" in out
    whole = tmp_path / "whole"
    train(load_config(dataset, overrides=SET), whole)
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert (run / "metrics.json").read_text() == (whole / "metrics.json").read_text()


def test_ctrl_c_keeps_the_steps_and_says_how_to_go_on(dataset: Path, tmp_path: Path) -> None:
    """As a terminal sends it: to the loader's processes too."""
    more = ["method.pretrain.steps=100000", "compute.checkpoint_every=100000", "compute.workers=2"]
    options = [part for setting in (*SET, *more) for part in ("--set", setting)]
    words = ["suture", "train", dataset.name, *options, "-o", str(tmp_path / "run")]
    curve, errors = tmp_path / "run/stages/1-pretrain/metrics.csv", tmp_path / "said"
    with started(*words, said=errors, printed=tmp_path / "printed", folder=dataset.parent, COLUMNS="100") as process:
        deadline = time.monotonic() + 120
        while len(read_curve(curve)) < 3:
            assert process.is_alive(), errors.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        process.join(60)
        assert process.exitcode == 130
    said = errors.read_text()
    steps = torch.load(curve.with_name("last.ckpt"), weights_only=True)["global_step"]
    assert re.search(rf"^stage 1 of 4: pretrain [ ━╸]+ {steps}/100000 ", said, re.MULTILINE)  # the bar, as it was left
    assert said.splitlines()[-2:] == [
        f"stage 1 of 4: pretrain was interrupted; {steps} steps are saved",
        f"Stopped; to go on: {shlex.join(words)}",
    ]
    assert steps == read_curve(curve)[-1]["step"]
    assert "Traceback" not in said


def test_a_run_is_no_dataset_and_goes_on_as_is_said(trained: tuple[Path, str, str]) -> None:
    run = trained[0]
    result = CliRunner().invoke(app, ["train", str(run)])
    go_on = f"suture train {run / 'config.yaml'} -o {run}"
    assert str(result.exception) == (
        f"{run} is a run, expected a config file or a dataset's folder: to go on with it, `{go_on}`."
    )
    result = CliRunner().invoke(app, go_on.split()[1:])
    assert result.exit_code == 0, result.output
    assert "The run is finished: nothing is trained." in result.output


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("check RUN", "videos or a dataset's folder: the one that it learns from is data.root in its config.yaml."),
        ("check RUN --write", "videos or a dataset's folder"),
        ("report RUN -o OUT.html --videos RUN", "videos or a dataset's folder"),
        ("predict RUN RUN -o OUT", "videos or images: a model is named once, before them."),
    ],
)
def test_a_run_in_place_of_videos_is_known_as_one(
    trained: tuple[Path, str, str], tmp_path: Path, command: str, expected: str
) -> None:
    run = trained[0]
    words = command.replace("RUN", str(run)).replace("OUT", str(tmp_path / "out")).split()
    result = CliRunner().invoke(app, words)
    assert str(result.exception).startswith(f"{run} is a run, expected {expected}")
    assert not list(tmp_path.iterdir())
    assert not (run / "dataset.yaml").exists()


def test_status_lists_the_runs_of_a_dataset(trained: tuple[Path, str, str], dataset: Path) -> None:
    run = trained[0]
    state = dataset_status(dataset, run.parent)
    assert [(one.folder, one.method, one.state) for one in state.runs] == [(str(run), "pgvcl", "finished")]
    assert state.next_step == ["report", str(run), "--open"]
    assert dataset_status(dataset, run.parent / "none").next_step == ["train", str(dataset)]


def test_evaluate_prints_the_scores_again(trained: tuple[Path, str, str]) -> None:
    run, out, _ = trained
    scores = Run(run).metrics
    result = CliRunner().invoke(app, ["evaluate", str(run)])
    assert result.exit_code == 0, result.output
    assert scores == Run(run).metrics
    assert result.stdout.count("Scores rest on little: ") == 1
    table = "Scores (%)"  # as wide as the terminal, so only its numbers are the same
    first, again = (re.findall(r"\d+\.\d", text[text.index(table) :]) for text in (out, result.output))
    assert len(first) > 10
    assert first == again


def test_evaluate_prints_the_scores_of_other_settings_without_keeping_them(trained: tuple[Path, str, str]) -> None:
    run = trained[0]
    kept = (run / "metrics.json").read_bytes()
    result = CliRunner().invoke(app, ["evaluate", str(run), "--set", "evaluation.splits=[val]"])
    assert "│ validation " in result.output
    assert "│ test " not in result.output
    nothing = ["--set", "evaluation.splits=[]", "--set", "evaluation.completion=false"]
    result = CliRunner().invoke(app, ["evaluate", str(run), *nothing])
    assert result.stdout.startswith("Nothing was scored: no video that is to be scored has masks.\n")
    assert (run / "metrics.json").read_bytes() == kept


def test_a_mistake_is_one_sentence_and_exit_code_2(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["suture", "train", str(dataset), "--set", "method.train.step=3"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.strip() == ("error: the command line: there is no setting method.train.step (did you mean steps?).")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "no dataset is named"),
        (["train", "nowhere"], "nowhere does not exist"),
        (["train", "nowhere.yaml"], "nowhere.yaml does not exist"),
        (["train", ".", "--set", "seed"], "the command line: found 'seed', expected KEY=VALUE"),
        (["evaluate", "nowhere"], "nowhere does not exist: expected a run folder."),
        (["evaluate", "."], ". is not a run folder"),
    ],
)
def test_mistakes_name_themselves(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, UserError)
    assert message in str(result.exception)


@pytest.mark.parametrize("command", ["train", "evaluate", "report", "export", "predict", "compare"])
@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_is_told_what_takes_seconds(
    command: str, terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no log file."""
    text = io.StringIO()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("suture.cli.terminal.err", Console(file=text, force_terminal=terminal))
    more = [str(tmp_path), "-o", str(tmp_path / "out")] if command == "predict" else []
    CliRunner().invoke(app, [command, str(tmp_path), *more])
    assert ("Loading PyTorch …" in text.getvalue()) == terminal


def test_the_help_names_every_preset() -> None:
    told = CliRunner().invoke(app, ["train", "-h"]).output
    assert set(presets()) <= set(re.findall(r"[\w-]+", told))


def test_the_help_names_every_method() -> None:
    told = CliRunner().invoke(app, ["train", "-h"]).output
    assert set(methods()) <= set(re.findall(r"\w+", told.partition("Methods, for")[2]))


def test_a_config_of_a_few_lines(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found relative to the config; what is said on the command line goes over it."""
    (tmp_path / "configs").mkdir()
    file = tmp_path / "configs/mine.yaml"
    file.write_text(
        f"preset: demo\nmethod: supervised\ndata: {{root: {os.path.relpath(dataset, file.parent)}, size: 32}}\n"
        "compute: {accelerator: cpu}\nevaluation: {splits: [test], completion: false}\n"
    )
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "configs/mine.yaml", "--set", "method.train.steps=2", "--set", "seed=4", "-o", "run"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    config = Run(Path("run")).config
    assert (config.seed, config.method["train"]["steps"], config.model.architecture) == (4, 2, "deeplabv3plus")
    assert config.data.root.resolve() == dataset.resolve()
