"""Devices, expected times and errors of runs, and how the queue ends them."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suture.comparison import queue
from suture.comparison.plan import RunKey
from suture.comparison.queue import Device, last_error, parse_devices
from suture.core.errors import UserError


def test_expected_duration_is_that_of_the_same_dataset_and_method() -> None:
    key = RunKey("a", "every-10", "pgvcl", "", 5)
    state: Any = SimpleNamespace(durations={})
    assert queue.Queue.expected_minutes(state, key) == 0
    state.durations = {RunKey("a", "every-20", "pgvcl", "", 0): 10.0, RunKey("b", "every-10", "dmt", "", 0): 70.0}
    expected = {method: queue.Queue.expected_minutes(state, key._replace(method=method)) for method in ("pgvcl", "dmt")}
    assert expected == {"pgvcl": 10, "dmt": 40}


@pytest.mark.parametrize(
    ("code", "log", "expected"),
    [
        (2, "stage 1 of 1\n\x1b[31merror:\x1b[0m data.size is 3: too small.\n", "data.size is 3: too small."),
        (1, "Traceback\n  File x\nRuntimeError: no\n\n", "RuntimeError: no"),
        (1, "", "exit code 1"),
        (-9, "so far so good\n", "killed by SIGKILL, perhaps out of memory"),
        (-15, "", "killed by SIGTERM"),
    ],
)
def test_error_of_a_failed_run(tmp_path: Path, code: int, log: str, expected: str) -> None:
    before = "error: of an earlier start\n"
    (tmp_path / "log").write_text(before + log)
    assert last_error(code, tmp_path / "log", len(before)) == expected


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert [device.name for device in parse_devices(None)] == ["0", "1"]
    assert [device.name for device in parse_devices("1")] == ["1"]
    assert Device("cpu").environment() == {"CUDA_VISIBLE_DEVICES": ""}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert Device("1").environment() == {"CUDA_VISIBLE_DEVICES": "1"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")  # the second of those that are visible
    assert Device("1").environment() == {"CUDA_VISIBLE_DEVICES": "6"}
    for wrong in ("2", "0,0", "gpu", ""):
        with pytest.raises(UserError, match="there are 2 GPUs here"):
            parse_devices(wrong)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert [device.name for device in parse_devices(None)] == ["auto"]


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
    monkeypatch.setattr(queue, "CANCEL_GRACE_S", 2.0)
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
