"""What the queue knows without starting a run: devices, expected times, last words; and how it ends them."""

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suture.comparison import queue
from suture.comparison.plan import Place
from suture.comparison.queue import Device, Times, devices_of, last_error
from suture.core.errors import UserError


def test_a_run_is_expected_to_take_what_its_like_took(tmp_path: Path) -> None:
    times = Times(tmp_path)
    place = Place("a", "every-10", "pgvcl", "", 5)
    assert times.expected(place) is None
    for name, seconds in {
        "a__every-10__pgvcl__seed-0": 10,
        "a__every-10__pgvcl__seed-1": 20,
        "a__every-20__pgvcl__seed-0": 300,
        "b__every-10__dmt__seed-0": 70,
    }.items():
        times.add(name, seconds)
    times = Times(tmp_path)
    assert times.expected(place) == 15
    assert times.expected(place._replace(labelling="all")) == 110
    assert times.expected(place._replace(method="dmt")) == 70
    assert times.expected(place._replace(method="uamt")) == 100


def test_of_runs_that_no_start_saw_from_end_to_end_the_stages_tell(tmp_path: Path, write_run: Any) -> None:
    names = [f"a__every-10__pgvcl__seed-{seed}" for seed in range(4)]
    stages = {"pretrain": {"seconds": 20.0}, "finetune": {"seconds": 30.0}}
    write_run(names[0], {}, stages=stages)
    write_run(names[1], {}, stages=stages | {"finetune": {"seconds": None}})
    times = Times(tmp_path)
    assert times.seconds == {names[0]: 50}
    write_run(names[2], {}, stages=stages)
    times.add(names[2], 1, fresh=False)
    times.add(names[3], 70)
    assert Times(tmp_path).seconds == {names[0]: 50, names[2]: 50, names[3]: 70}
    times.add(names[2], 60, fresh=False)  # start-up and scoring of its last start alone took longer than the stages
    assert Times(tmp_path).seconds[names[2]] == 60


@pytest.mark.parametrize(("method", "starts"), [("pgvcl", False), ("dmt", True)])
def test_no_run_is_started_whose_like_has_been_running_for_longer(method: str, starts: bool, tmp_path: Path) -> None:
    """Whatever the quick ones took that are finished."""
    slow, waiting = (
        SimpleNamespace(name=name, place=Place("a", "all", name, "", seed))
        for seed, name in enumerate(("pgvcl", method))
    )
    times = Times(tmp_path)
    times.add("a__all__supervised__seed-0", 1)
    now = time.monotonic()
    state: Any = SimpleNamespace(
        waiting=[waiting],
        running=[SimpleNamespace(run=slow, began=now - 100)],
        times=times,
        free=["cpu"],
        left=[],
        ends=now + 60,
        _start=lambda run, _: SimpleNamespace(run=run),
    )
    state._expected = lambda place: queue.Queue._expected(state, place)
    queue.Queue._start_what_fits(state)
    assert (len(state.running) == 2, state.left == [method]) == (starts, not starts)


@pytest.mark.parametrize(
    ("code", "log", "expected"),
    [
        (2, "stage 1 of 1\n\x1b[31merror:\x1b[0m data.size is 3: too small.\n", "data.size is 3: too small."),
        (1, "Traceback\n  File x\nRuntimeError: no\n\n", "RuntimeError: no"),
        (1, "", "exit code 1"),
        (-9, "so far so good\n", "killed by SIGKILL, perhaps for want of memory"),
        (-15, "", "killed by SIGTERM"),
    ],
)
def test_the_last_words_of_a_run(tmp_path: Path, code: int, log: str, expected: str) -> None:
    before = "error: of an earlier start\n"
    (tmp_path / "log").write_text(before + log)
    assert last_error(code, tmp_path / "log", len(before)) == expected


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert [device.name for device in devices_of(None)] == ["0", "1"]
    assert [device.name for device in devices_of("1")] == ["1"]
    assert Device("cpu").environment() == {"CUDA_VISIBLE_DEVICES": ""}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert Device("1").environment() == {"CUDA_VISIBLE_DEVICES": "1"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")  # the second of those that are visible
    assert Device("1").environment() == {"CUDA_VISIBLE_DEVICES": "6"}
    for wrong in ("2", "0,0", "gpu", ""):
        with pytest.raises(UserError, match="there are 2 GPUs here"):
            devices_of(wrong)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert [device.name for device in devices_of(None)] == ["auto"]


RUN = """
import pathlib, signal, sys, time
def keep(*_):
    pathlib.Path(sys.argv[1]).write_text("kept")
    sys.exit()
signal.signal(signal.SIGTERM, keep if sys.argv[2] == "listens" else signal.SIG_IGN)
print("ready", flush=True)
time.sleep(100)
"""


def test_runs_are_asked_to_end_before_they_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "LAST_WORDS", 2.0)
    handles = [
        subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path / how), how], stdout=-1)
        for how in ("deaf", "listens")
    ]
    for handle in handles:
        assert handle.stdout is not None
        assert handle.stdout.readline() == b"ready\n"
    run = SimpleNamespace(name="unfinished")
    running = [SimpleNamespace(handle=handle, run=run) for handle in handles]
    state: Any = SimpleNamespace(running=running, out=tmp_path)
    queue.Queue._stop(state)
    assert [handle.returncode for handle in handles] == [-9, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["listens"]
