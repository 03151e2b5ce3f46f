"""A run that is stopped at any moment goes on to the same weights, bit for bit, as one that never was."""

import io
import itertools
import os
import shlex
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import torch
import yaml
from resume_tester import begin, begin_command, same
from rich.console import Console

from suture.core.errors import UserError
from suture.core.io import read_json
from suture.models.model import save_model
from suture.training.callbacks import Checkpoint, StageProgress
from suture.training.config import Config
from suture.training.loop import TrainingLoop
from suture.training.run_folder import read_curve
from suture.training.train import train

EITHER_SIGNAL = pytest.mark.parametrize(
    ("number", "ends"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
BANK = ("method.contrast.keys.mode=bank", "method.contrast.accumulate=2", "method.contrast.ema=0.9")


class Crash(Exception):
    """Ends a run where a test wants it."""


@pytest.fixture
def crashes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Places (stage, parts of steps done) still to crash at: a run that reaches one ends there, and it is removed."""
    places: list[tuple[str, int]] = []
    original = TrainingLoop._do_part

    def or_crash(self: TrainingLoop, batch: Any, part: int) -> None:
        original(self, batch, part)
        place = (self.stage.name, self.step * self.stage.settings.accumulate + part + 1)
        if place in places:
            places.remove(place)
            raise Crash

    monkeypatch.setattr(TrainingLoop, "_do_part", or_crash)
    return places


def finish(config: Config, folder: Path, crashes: list[tuple[str, int]], train: Callable[..., Any]) -> int:
    """Start a run again and again until it goes through; return the number of starts."""
    for starts in range(1, 100):
        try:
            train(config, folder)
            return starts
        except Crash:
            pass
    raise AssertionError("it never came to its end")


HALVES = ("method.train.accumulate=2", "method.train.ema=0.9")


@pytest.fixture(scope="module")
def whole(supervised: Callable[..., Config], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of accumulated halves with an average of the weights that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    train(supervised(*HALVES), folder, Console(quiet=True))
    return folder


@pytest.mark.parametrize("every", [1, 3])
def test_supervised_crashed_in_every_part_of_every_step(
    every: int,
    supervised: Callable[..., Config],
    whole: Path,
    crashes: list[tuple[str, int]],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
) -> None:
    config = supervised(*HALVES, f"compute.checkpoint_every={every}")
    crashes += [("train", batches) for batches in range(1, 9)]
    assert finish(config, tmp_path, crashes, train_quietly) == 9
    assert same(whole, tmp_path)


def test_the_time_of_a_stage_is_that_of_all_its_starts(
    supervised: Callable[..., Config],
    crashes: list[tuple[str, int]],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
) -> None:
    config = supervised("compute.checkpoint_every=1")
    crashes.append(("train", 3))
    with pytest.raises(Crash):
        train_quietly(config, tmp_path)
    checkpoint = tmp_path / "stages/1-train/last.ckpt"
    saved = torch.load(checkpoint, weights_only=True)
    assert 0 < saved["seconds"] < 100
    saved["seconds"] += 1000
    torch.save(saved, checkpoint)
    train_quietly(config, tmp_path)
    assert 1000 < read_json(tmp_path / "stages/1-train/done.json")["seconds"] < 1100


def test_contrast_with_a_bank_crashed_in_every_part_of_every_step(
    pgvcl: Callable[..., Config],
    crashes: list[tuple[str, int]],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Momentum copy, bank, projector and average all have to come back."""
    config = pgvcl(*BANK, "compute.checkpoint_every=1")
    train_quietly(config, tmp_path / "whole")
    crashes += [("pretrain", 2), *(("contrast", batches) for batches in range(1, 7)), ("finetune", 1)]
    finish(config, tmp_path / "crashed", crashes, train_quietly)
    assert not crashes
    assert same(tmp_path / "whole", tmp_path / "crashed")


def test_a_checkpoint_holds_momentum_copy_bank_and_average_as_plain_tensors(
    pgvcl: Callable[..., Config],
    crashes: list[tuple[str, int]],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
) -> None:
    crashes.append(("contrast", 3))
    with pytest.raises(Crash):
        train_quietly(pgvcl(*BANK, "compute.checkpoint_every=1"), tmp_path)
    saved = torch.load(tmp_path / "stages/3-contrast/last.ckpt", weights_only=True)
    assert saved["global_step"] == 1
    names = {name.split(".")[0] for name in saved["state_dict"]}
    assert names == {"segmenter", "online", "momentum", "bank", "average"}
    assert saved["state_dict"]["bank.visited"].any()


def test_ctrl_c_is_an_interrupt_and_not_an_exit(
    supervised: Callable[..., Config],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(StageProgress, "on_step_end", lambda *_: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        train_quietly(supervised(), tmp_path)
    assert signal.getsignal(signal.SIGINT) is before
    monkeypatch.undo()
    train_quietly(supervised(), tmp_path)


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Send a signal some times after so many parts of steps; each is handled before the next comes."""
    original = TrainingLoop._do_part

    def send(number: signal.Signals, parts: int, times: int = 1) -> None:
        def or_end(self: TrainingLoop, batch: Any, part: int) -> None:
            original(self, batch, part)
            done = self.step * self.stage.settings.accumulate + part + 1
            for _ in range(times if done == parts else 0):
                signal.raise_signal(number)

        monkeypatch.setattr(TrainingLoop, "_do_part", or_end)

    return send


class Stopped(NamedTuple):
    """What is there of a training that a signal has ended."""

    error: BaseException
    step: int | None
    """Of its checkpoint, if it has one."""
    done: bool
    """Whether its stage came to its end all the same."""


@pytest.fixture
def stopped(
    supervised: Callable[..., Config],
    train_quietly: Callable[..., Any],
    whole: Path,
    tmp_path: Path,
    signalled: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Stopped]:
    """End a training of accumulated halves by a signal after so many batches; it then goes on to the same weights."""

    def stop(number: signal.Signals, parts: int, ends: type[BaseException]) -> Stopped:
        config, folder = supervised(*HALVES), tmp_path
        before = signal.getsignal(number)
        signalled(number, parts)
        with pytest.raises(ends) as ended:
            train_quietly(config, folder)
        assert signal.getsignal(number) is before
        found = Stopped(ended.value, steps_kept(folder), (folder / "stages/1-train/done.json").exists())
        monkeypatch.undo()
        train_quietly(config, folder)
        assert same(whole, folder)
        return found

    return stop


@pytest.mark.parametrize(("parts", "step"), [(1, 1), (5, 3), (8, None)])
@EITHER_SIGNAL
def test_a_signal_waits_for_the_end_of_the_step_and_keeps_it(
    number: signal.Signals,
    ends: type[BaseException],
    parts: int,
    step: int | None,
    stopped: Callable[..., Stopped],
) -> None:
    """In the last step, the stage is done first."""
    found = stopped(number, parts, ends)
    assert getattr(found.error, "code", 143) == 143
    assert found.step == step
    assert found.done == (step is None)


@EITHER_SIGNAL
def test_a_signal_while_the_weights_of_a_stage_are_written_waits_for_them(
    number: signal.Signals,
    ends: type[BaseException],
    supervised: Callable[..., Config],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def signalled(*arguments: Any) -> None:
        signal.raise_signal(number)
        save_model(*arguments)

    monkeypatch.setattr("suture.training.run_stages.save_model", signalled)
    assert said_by(supervised(), tmp_path, ends) == "stage 1 of 1: train was interrupted; 4 steps are saved"
    assert (tmp_path / "stages/1-train/done.json").exists()


def fail_after(number: signal.Signals, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first step hear a signal and fail."""

    def fail(*_: Any) -> None:
        signal.raise_signal(number)
        raise RuntimeError(says)

    monkeypatch.setattr(StageProgress, "on_step_end", fail)


@EITHER_SIGNAL
def test_a_loader_that_died_of_the_signal_is_no_failure(
    number: signal.Signals,
    ends: type[BaseException],
    supervised: Callable[..., Config],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_after(number, "DataLoader worker (pid 7) is killed by signal: Terminated. ", monkeypatch)
    assert said_by(supervised(), tmp_path, ends) == "stage 1 of 1: train was interrupted; 0 steps are saved"


def test_a_second_ctrl_c_ends_at_once(
    supervised: Callable[..., Config],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
    signalled: Callable[..., None],
) -> None:
    before = signal.getsignal(signal.SIGINT)
    signalled(signal.SIGINT, parts=3, times=2)
    with pytest.raises(KeyboardInterrupt):
        train_quietly(supervised(*HALVES), tmp_path)
    assert signal.getsignal(signal.SIGINT) is before
    assert steps_kept(tmp_path) is None


def said_by(config: Config, folder: Path, ends: type[BaseException]) -> str:
    """What a training that ends so has said in its last line."""
    text = io.StringIO()
    with pytest.raises(ends):
        train(config, folder, Console(file=text))
    return text.getvalue().splitlines()[-1]


@EITHER_SIGNAL
@pytest.mark.parametrize("step", [2, 4])
def test_an_interrupted_training_prints_the_saved_steps(
    number: signal.Signals,
    step: int,
    ends: type[BaseException],
    supervised: Callable[..., Config],
    tmp_path: Path,
    signalled: Callable[..., None],
) -> None:
    """In the last step too, after which the weights are chosen as ever."""
    signalled(number, step)
    config = supervised("method.train.best_every=5")
    assert said_by(config, tmp_path, ends) == f"stage 1 of 1: train was interrupted; {step} steps are saved"
    assert (tmp_path / "stages/1-train/best.json").exists() == (step == 4)


@pytest.mark.parametrize("place", [(TrainingLoop, "run"), (Checkpoint, "on_start")])
def test_kept_steps_are_not_printed_before_the_checkpoint_is_read(
    place: tuple[type, str], supervised: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def twice(*_: Any) -> None:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(*place, twice)
    assert said_by(supervised(), tmp_path, KeyboardInterrupt) == "stage 1 of 1: train was interrupted"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_error_after_a_signal_is_said_as_what_it_is(
    number: signal.Signals,
    supervised: Callable[..., Config],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_after(number, "CUDA is out of order", monkeypatch)
    with pytest.raises(RuntimeError, match="out of order"):
        train_quietly(supervised(), tmp_path)


def test_ctrl_c_between_request_and_checkpoint_ends_a_step_later(
    supervised: Callable[..., Config],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original, calls = Checkpoint.request, itertools.count()

    def interrupted(self: Checkpoint) -> int:
        request = original(self)
        if next(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return request

    monkeypatch.setattr(Checkpoint, "request", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_quietly(supervised(), tmp_path)
    assert steps_kept(tmp_path) == 3


@pytest.mark.parametrize(
    ("number", "times", "step"), [(signal.SIGINT, 1, 2), (signal.SIGINT, 2, None), (signal.SIGTERM, 2, 2)]
)
def test_a_signal_to_the_whole_group_of_processes(
    number: signal.Signals,
    times: int,
    step: int | None,
    supervised: Callable[..., Config],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Of a terminal or a cluster; it reaches the loader's processes too: they go on until the training ends."""
    config = supervised("compute.workers=2")
    file, folder, said = tmp_path / "config.yaml", tmp_path / "run", tmp_path / "said"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    words = ["train", str(file), "-o", str(folder)]
    heard = "\nEnds after this step; Ctrl-C again ends at once.\n"
    training, batches = begin_command(words, said)
    try:
        assert batches.recv() == "a batch"
        batches.send("go on")
        assert batches.recv() == "a batch"  # one of each loader
        loaders = psutil.Process(training.pid).children()
        assert len(loaders) == 2
        for _ in range(times):
            os.killpg(training.pid, number)
            while number == signal.SIGINT and heard not in said.read_text():
                time.sleep(0.01)
        if step:
            batches.send("go on")
        training.join()
        assert training.exitcode == 128 + number
        assert not psutil.wait_procs(loaders, timeout=60)[1]
    finally:
        training.kill()
    assert steps_kept(folder) == step
    last, how = said.read_text().splitlines()[-2:]
    assert last == f"stage 1 of 1: train was interrupted; {step or 0} steps are saved"
    assert how == f"Stopped; to go on: {shlex.join(['suture', *words])}"
    assert said.read_text().count(heard) == (number == signal.SIGINT)
    assert "Traceback" not in said.read_text()
    train_quietly(config, folder)
    train_quietly(config, tmp_path / "whole")
    assert same(tmp_path / "whole", folder)


def steps_kept(folder: Path) -> int | None:
    """The step of a supervised run's checkpoint, if there is one."""
    checkpoint = folder / "stages/1-train/last.ckpt"
    return torch.load(checkpoint, weights_only=True)["global_step"] if checkpoint.exists() else None


def test_a_second_process_on_one_folder_is_refused_and_a_killed_one_is_no_hindrance(
    supervised: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    """With loader processes, which outlive a killed parent for a moment."""
    config = supervised("method.train.steps=1000", "compute.workers=1")
    first = begin(config, tmp_path / "run")
    while not read_curve(tmp_path / "run/stages/1-train/metrics.csv"):
        time.sleep(0.01)
    try:
        with pytest.raises(UserError) as caught:
            train_quietly(config, tmp_path / "run")
    finally:
        first.kill()
        first.join()
    assert str(caught.value).startswith(f"{tmp_path / 'run'} is in use by process {first.pid} on ")
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(UserError, match="was started with another config"):  # which is looked at under the lock
        train_quietly(supervised(), tmp_path / "run")
