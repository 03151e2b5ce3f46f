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
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from suture.comparison.plan import FAILED, ComparisonPlan, PlannedRun, RunKey
from suture.comparison.results import read_run
from suture.core.errors import UserError, describe_os_error
from suture.core.io import write_json, write_text
from suture.core.schemas import FailuresRecord, read_record
from suture.core.signals import end, hearing
from suture.core.workers import cores
from suture.evaluation.protocols import COMPLETION
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
        if self.name == "cpu":
            return {"CUDA_VISIBLE_DEVICES": ""}
        if self.name == "auto":
            return {}
        visible = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
        return {"CUDA_VISIBLE_DEVICES": visible[int(self.name)] if visible else self.name}

    def overrides(self, run: PlannedRun, sharing: int) -> list[str]:
        """Settings of `compute` for this device if `sharing` runs share the machine."""
        if self.name == "cpu":
            return ["compute.accelerator=cpu"]
        if self.name != "auto" and run.config.compute.workers is None and sharing > 1:
            return [f"compute.workers={min(MAX_WORKERS, cores(sharing))}"]
        return []


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
    """Runs not started or stopped for want of time."""


@dataclass
class _Process:
    run: PlannedRun
    device: Device
    handle: "subprocess.Popen[bytes]"
    began: float
    log: Path
    log_start: int


def is_finished(out: Path, name: str) -> bool:
    """Check for a run's scores in a comparison's folder."""
    return (out / "runs" / name / "metrics.json").exists()


class Queue:
    """Runs to train, `jobs` at a time on each device, at most for `minutes`.

    `on_finish` is called after each finished run.
    """

    def __init__(
        self,
        plan: ComparisonPlan,
        out: Path,
        devices: Sequence[Device],
        jobs: int,
        minutes: float | None,
        on_finish: Callable[[], None],
        console: Console,
    ) -> None:
        self.out = out
        self.on_finish = on_finish
        self.deadline = math.inf if minutes is None else time.monotonic() + 60 * minutes
        self.total = len(plan.runs)
        self.finished: list[str] = []
        self.failed: dict[str, str] = {}
        self.minutes: dict[RunKey, float] = {}
        """Duration of finished runs; of earlier ones without start and evaluation."""
        for run in plan.runs:
            if is_finished(out, run.name):
                try:
                    self.minutes[run.key] = read_run(out / "runs" / run.name).facts["minutes"] or 0
                    self.finished.append(run.name)
                except UserError as error:  # damaged files are left as they are
                    self.failed[run.name] = str(error)
        self.waiting = [run for run in plan.runs if not is_finished(out, run.name)]
        self.left: list[str] = []
        self.running: list[_Process] = []
        # One run on every device before any device gets its second.
        self.free = [device for _ in range(jobs) for device in devices]
        self.slots = len(self.free)
        self.runs_at_a_time = min(jobs, math.ceil(len(self.waiting) / len(devices)))
        self.earlier: dict[str, str] = read_record(out / FAILED, FailuresRecord) if (out / FAILED).exists() else {}
        self.console = console

    def train(self) -> QueueOutcome:
        """Train what is not finished; when interrupted, let running processes write a checkpoint."""
        if self.finished:
            self._print(f"{len(self.finished)} of {self.total} runs are finished already.")
        for name, error in self.failed.items():
            self._print(f"{name} is damaged: {error}")
        bar = Progress(
            TextColumn("{task.completed:.0f}/{task.total:.0f} runs"),
            BarColumn(),
            TextColumn("{task.fields[detail]}"),
            console=self.console,
            auto_refresh=False,
            transient=True,
            disable=not self.console.is_terminal,
        )
        with hearing(signal.SIGTERM, end), bar:
            task = bar.add_task("", total=self.total, detail="")
            try:
                while self.waiting or self.running:
                    self._start_what_fits()
                    self._collect_ended()
                    if time.monotonic() > self.deadline:
                        self._give_up()
                    bar.update(task, completed=len(self.finished), detail=self._detail())
                    bar.refresh()
                    time.sleep(POLL_INTERVAL_S if self.running else 0)
            finally:
                self._stop()
        return QueueOutcome(self.finished, self.failed, self.left)

    def expected_minutes(self, key: RunKey) -> float:
        """Mean duration of the most similar finished runs, at least that of running ones; 0 if unknown."""
        similar: tuple[Callable[[RunKey], bool], ...] = (
            lambda other: other[:4] == key[:4],
            lambda other: (other.dataset, other.method) == (key.dataset, key.method),
            lambda other: other.method == key.method,
            lambda other: True,
        )
        known = ([one for other, one in self.minutes.items() if is_similar(other)] for is_similar in similar)
        minutes = next((values for values in known if values), [0.0])
        now = time.monotonic()
        so_far = [(now - one.began) / 60 for one in self.running if similar[1](one.run.key)]
        return max(sum(minutes) / len(minutes), *so_far, 0)

    def _start_what_fits(self) -> None:
        while self.free and self.waiting:
            run = self.waiting.pop(0)
            if time.monotonic() + EXPECTED_TIME_MARGIN * 60 * self.expected_minutes(run.key) > self.deadline:
                self.left.append(run.name)
                continue
            try:
                self.running.append(self._start(run, self.free[0]))
                self.free.pop(0)
            except OSError as error:  # as if a folder has the name of the log
                self._fail(run.name, describe_os_error(error))

    def _start(self, run: PlannedRun, device: Device) -> _Process:
        if self.earlier.pop(run.name, None):
            write_json(self.out / FAILED, self.earlier | self.failed)
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
        if not self.console.is_terminal:  # a terminal shows a bar
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
                self._fail(name, last_error(code, process.log, process.log_start), f" ({process.log})")

    def _fail(self, name: str, error: str, more: str = "") -> None:
        self.failed[name] = error
        write_json(self.out / FAILED, self.earlier | self.failed)
        self._print(f"{name} failed: {error}{more}")

    def _finish(self, process: _Process) -> None:
        key, minutes = process.run.key, (time.monotonic() - process.began) / 60
        result = read_run(self.out / "runs" / key.name)
        self.finished.append(key.name)
        self.minutes[key] = max(minutes, result.facts["minutes"] or 0)  # a run may have continued
        scores = [
            f"{title} {100 * value:.1f}"
            for which, title in (("test", "mIoU"), ("val", "validation"), (COMPLETION, "completion"))
            if (value := result.score(which, "all", "", result.facts["primary"])) is not None
        ]
        self._print(f"{key.name}: {', '.join(scores) or 'no scores'}, {_duration(minutes)}; {self._detail()}")
        self.on_finish()

    def _give_up(self) -> None:
        unfinished = [process.run.name for process in self.running] + [run.name for run in self.waiting]
        self.waiting = []
        self._stop()
        self.left += [name for name in unfinished if name not in self.finished]

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
        now = time.monotonic()
        rest = [self.expected_minutes(one.run.key) - (now - one.began) / 60 for one in self.running]
        work = [self.expected_minutes(run.key) for run in self.waiting]
        left = max([(sum(work) + sum(rest)) / self.slots, *rest])
        parts = [f"{len(runs)} {state}" for runs, state in ((self.running, "running"), (self.failed, "failed")) if runs]
        parts.append(f"about {_duration(left)} left" if self.minutes and left > 0 else "")
        return ", ".join(filter(None, parts)) or "done"

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def last_error(code: int, log: Path, start: int = 0) -> str:
    """Return the `error:` line of a failed process, or the last line of its traceback."""
    if code < 0:
        name = signal.Signals(-code).name
        return f"killed by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")
    with log.open("rb") as file:
        file.seek(start)
        text = file.read().decode("utf-8", errors="replace")
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).splitlines() if line.strip()]
    errors = [line.removeprefix("error:").strip() for line in lines if line.startswith("error:")]
    return (errors or lines or [f"exit code {code}"])[-1]


def _duration(minutes: float) -> str:
    if minutes < 1.5:
        return f"{60 * minutes:.0f} s"
    return f"{minutes:.0f} min" if minutes < 60 else f"{minutes // 60:.0f} h {minutes % 60:02.0f} min"


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _end_with_parent() -> None:
    """Ask Linux to kill this process with its parent: a killed comparison must not hold its devices and locks."""
    if _LIBC is not None:
        _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
