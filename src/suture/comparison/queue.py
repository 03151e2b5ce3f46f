"""Queue of a comparison's runs: a process for each, several at a time.

A run is finished when its `metrics.json` is there. A run that fails does not stop the others. A run that was stopped
continues from its last checkpoint when the comparison is started again.
"""

import ctypes
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import yaml
from rich.console import Console

from suture.comparison.plan import FAILED, ComparisonPlan, PlannedRun, RunKey
from suture.comparison.results import read_run
from suture.core.errors import UserError
from suture.core.io import write_json, write_text
from suture.core.progress import ProgressBar
from suture.core.schemas import FailuresRecord, read_record
from suture.core.signals import end, handle_signal
from suture.core.workers import cores
from suture.evaluation.titles import SETS
from suture.training.config import relocated
from suture.training.environment import RUNS_AT_A_TIME

POLL_INTERVAL_S = 0.2
EXPECTED_TIME_MARGIN = 1.1
"""A run may take this many times longer than similar ones before it counts as too long for the time left."""
CANCEL_GRACE_S = 15.0
"""Time for stopped runs to write a checkpoint."""
MAX_WORKERS = 8


@dataclass(frozen=True)
class Device:
    """A GPU by its number among the visible ones, `cpu`, or `auto`."""

    name: str

    def environment(self) -> dict[str, str]:
        visible = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
        number = visible[int(self.name)] if visible and self.name.isdigit() else self.name
        return {} if self.name == "auto" else {"CUDA_VISIBLE_DEVICES": "" if self.name == "cpu" else number}

    def overrides(self, run: PlannedRun, sharing: int) -> list[str]:
        """Settings of `compute` for this device if `sharing` runs share the machine."""
        if self.name == "cpu":
            return ["compute.accelerator=cpu"]
        is_shared = self.name != "auto" and run.config.compute.workers is None and sharing > 1
        return [f"compute.workers={min(MAX_WORKERS, cores(sharing))}"] if is_shared else []


def parse_devices(text: str | None) -> list[Device]:
    """Parse `cpu` or GPU numbers such as `0,1`; None means every GPU, or `auto` if there is none."""
    count = torch.cuda.device_count()
    if text is None:
        return [Device(str(number)) for number in range(count)] or [Device("auto")]
    if text == "cpu":
        return [Device("cpu")]
    names = text.split(",")
    if not all(name.isdigit() and int(name) < count for name in names) or len(set(names)) < len(names):
        raise UserError(f"--devices is {text}, expected cpu or GPU numbers such as 0,1; there are {count} GPUs here.")
    return [Device(name) for name in names]


@dataclass(frozen=True)
class QueueOutcome:
    """Names of finished, failed and unfinished runs."""

    finished: list[str]
    failed: dict[str, str]
    """Error message of each failed run."""
    left: list[str]
    """Runs not started, or stopped, for lack of time."""


@dataclass
class _Process:
    run: PlannedRun
    device: Device
    handle: "subprocess.Popen[bytes]"
    began: float
    log: Path
    log_start: int

    @property
    def minutes(self) -> float:
        return (time.monotonic() - self.began) / 60


def is_finished(out: Path, name: str) -> bool:
    """Check for a run's scores in a comparison's folder."""
    return (out / "runs" / name / "metrics.json").exists()


@dataclass
class Queue:
    """Runs to train, `jobs` at a time on each device, at most for `minutes`.

    `on_finish` is called after each finished run.
    """

    plan: ComparisonPlan
    out: Path
    devices: Sequence[Device]
    jobs: int
    minutes: float | None
    on_finish: Callable[[], None]
    console: Console
    running: list[_Process] = field(default_factory=list)
    durations: dict[RunKey, float] = field(default_factory=dict)
    """Minutes of finished runs; of earlier ones without start and evaluation."""

    def __post_init__(self) -> None:
        self.deadline = math.inf if self.minutes is None else time.monotonic() + 60 * self.minutes
        self.outcome = QueueOutcome([], {}, [])
        for run in self.plan.runs:
            if is_finished(self.out, run.name):
                try:
                    self.durations[run.key] = read_run(self.out / "runs" / run.name).facts["minutes"]
                    self.outcome.finished.append(run.name)
                except UserError as error:  # damaged files are left as they are
                    self.outcome.failed[run.name] = str(error)
        self.waiting = [run for run in self.plan.runs if not is_finished(self.out, run.name)]
        # One run on every device before any device gets its second.
        self.free = [device for _ in range(self.jobs) for device in self.devices]
        self.slots = len(self.free)
        self.runs_at_a_time = min(self.jobs, math.ceil(len(self.waiting) / len(self.devices)))
        path = self.out / FAILED
        self.reasons: dict[str, str] = read_record(path, FailuresRecord) if path.exists() else {}

    def train(self) -> QueueOutcome:
        """Train what is not finished; when interrupted, let running processes write a checkpoint."""
        total = len(self.plan.runs)
        if self.outcome.finished:
            self._print(f"{len(self.outcome.finished)} of {total} runs are finished already.")
        for name, error in self.outcome.failed.items():
            self._print(f"{name} is damaged: {error}")
        with handle_signal(signal.SIGTERM, end), ProgressBar(self.console) as bar:
            task = bar.add_task("runs", total=total)
            try:
                while self.waiting or self.running:
                    self._start_what_fits()
                    self._collect_ended()
                    if time.monotonic() > self.deadline:
                        self._give_up()
                    bar.update(task, completed=len(self.outcome.finished), detail=self._detail())
                    time.sleep(POLL_INTERVAL_S if self.running else 0)
            finally:
                self._stop()
        return self.outcome

    def expected_minutes(self, key: RunKey) -> float:
        """Mean duration of the finished runs of a dataset and method, else of all; 0 if there is none."""
        alike = [one for other, one in self.durations.items() if (other[0], other[2]) == (key[0], key[2])]
        minutes = alike or list(self.durations.values())
        return sum(minutes) / max(len(minutes), 1)

    def _start_what_fits(self) -> None:
        while self.free and self.waiting:
            run = self.waiting.pop(0)
            if time.monotonic() + EXPECTED_TIME_MARGIN * 60 * self.expected_minutes(run.key) > self.deadline:
                self.outcome.left.append(run.name)
                continue
            self.running.append(self._start(run, self.free.pop(0)))

    def _start(self, run: PlannedRun, device: Device) -> _Process:
        if self.reasons.pop(run.name, None):
            write_json(self.out / FAILED, self.reasons)
        config = self.out / "configs" / f"{run.name}.yaml"
        settings = relocated(run.config.model_dump(mode="json"), Path(), config.parent)
        write_text(config, yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))
        log, folder = self.out / "logs" / f"{run.name}.log", self.out / "runs" / run.name
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "suture", "train", str(config), "-o", str(folder)]
        for override in device.overrides(run, self.slots):
            command += ["--set", override]
        environment = os.environ | {"PYTHONUNBUFFERED": "1", RUNS_AT_A_TIME: str(self.runs_at_a_time)}
        environment |= device.environment()
        if self.slots > 1:
            environment.setdefault("OMP_NUM_THREADS", str(cores(self.slots)))
        verb = "continues" if (folder / "config.yaml").exists() else "starts"
        with log.open("ab") as file:
            start = file.tell()
            handle = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
                preexec_fn=_end_with_parent,
                process_group=0,  # Ctrl-C reaches this process alone, which then ends them
            )
        self._print(f"{run.name} {verb} ({log})")
        return _Process(run, device, handle, time.monotonic(), log, start)

    def _collect_ended(self) -> None:
        for process in [one for one in self.running if one.handle.poll() is not None]:
            self.running.remove(process)
            self.free.append(process.device)
            name, code = process.run.name, process.handle.returncode
            if code == 0 and is_finished(self.out, name):
                self._finish(process)
            else:
                error = last_error(code, process.log, process.log_start)
                self.outcome.failed[name] = self.reasons[name] = error
                write_json(self.out / FAILED, self.reasons)
                self._print(f"{name} failed: {error} ({process.log})")

    def _finish(self, process: _Process) -> None:
        key, minutes = process.run.key, process.minutes
        result = read_run(self.out / "runs" / key.name)
        self.outcome.finished.append(key.name)
        self.durations[key] = max(minutes, result.facts["minutes"])  # a run may have continued
        values = {title.name: result.score(which, "all", "", result.facts["primary"]) for which, title in SETS.items()}
        texts = [f"{name} {100 * value:.1f}" for name, value in values.items() if value is not None]
        self._print(f"{key.name}: {', '.join(texts)}, {_duration(minutes)}; {self._detail()}")
        self.on_finish()

    def _give_up(self) -> None:
        unfinished = [process.run.name for process in self.running] + [run.name for run in self.waiting]
        self.waiting = []
        self._stop()
        self.outcome.left.extend(name for name in unfinished if name not in self.outcome.finished)

    def _stop(self) -> None:
        """End running processes; each writes a checkpoint, unless it finishes just now."""
        stopped, self.running = self.running, []
        for process in stopped:
            process.handle.terminate()
        deadline = time.monotonic() + CANCEL_GRACE_S
        for process in stopped:
            try:
                process.handle.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.handle.kill()
                process.handle.wait()
        for process in stopped:
            if is_finished(self.out, process.run.name):
                self._finish(process)

    def _detail(self) -> str:
        left = sum(self.expected_minutes(run.key) for run in [*self.waiting, *(one.run for one in self.running)])
        time_left = f", about {_duration(left / self.slots)} left" if self.durations else ""
        return f"{len(self.running)} running, {len(self.outcome.failed)} failed{time_left}"

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def last_error(code: int, log: Path, start: int = 0) -> str:
    """Return the `error:` line of a failed process, or the last line of its traceback."""
    if code < 0:
        name = signal.Signals(-code).name
        return f"killed by {name}" + (", perhaps out of memory" if name == "SIGKILL" else "")
    with log.open("rb") as file:
        file.seek(start)
        text = file.read().decode("utf-8", errors="replace")
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).splitlines() if line.strip()]
    errors = [line.removeprefix("error:").strip() for line in lines if line.startswith("error:")]
    return (errors or lines or [f"exit code {code}"])[-1]


def _duration(minutes: float) -> str:
    return str(timedelta(seconds=round(60 * minutes)))


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _end_with_parent() -> None:
    """Kill this process with its parent (Linux): after a kill, nothing must hold devices and locks."""
    if _LIBC is not None:
        _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
