"""Train the runs of a plan: as many at once as the devices take, each in a process of its own.

A run is finished when its `metrics.json` is there. One that fails does not stop the others, and neither does one whose
small files are damaged, which is left as it is; one that was stopped goes on from its last checkpoint when the
comparison is started again.
"""

import ctypes
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from suture.comparison.plan import FAILED, Place, Plan, Planned
from suture.comparison.results import damage
from suture.core.errors import UserError, describe_os_error
from suture.core.io import write_json, write_text
from suture.core.schemas import FailuresRecord, MetricsRecord, SecondsRecord, StageRecord, read_record
from suture.core.signals import end, hearing
from suture.core.text import listed
from suture.core.workers import cores
from suture.evaluation.protocols import COMPLETION
from suture.training.config import relocated
from suture.training.provenance import RUNS_AT_A_TIME

TIMES = "times.json"
"""How long each finished run took, in seconds: what the time left is estimated from."""
PAUSE = 0.2
"""Seconds between two looks at the processes."""
MARGIN = 1.1
"""How much longer than its like a run may take before it exceeds the time that is left."""
LAST_WORDS = 15.0
"""Seconds that runs have to write a checkpoint when they are asked to end."""


@dataclass(frozen=True)
class Device:
    """Where runs are computed: a GPU by its number among the visible ones, `cpu`, or whatever `auto` finds."""

    name: str

    def environment(self) -> dict[str, str]:
        if self.name == "cpu":
            return {"CUDA_VISIBLE_DEVICES": ""}
        if self.name == "auto":
            return {}
        visible = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
        return {"CUDA_VISIBLE_DEVICES": visible[int(self.name)] if visible else self.name}

    def overrides(self, run: Planned, sharing: int) -> list[str]:
        """Settings of `compute` that fit this device when so many runs share the machine."""
        if self.name == "cpu":
            return ["compute.accelerator=cpu"]
        if self.name != "auto" and run.config.compute.workers is None and sharing > 1:
            return [f"compute.workers={min(8, cores(sharing))}"]
        return []


def devices_of(said: str | None) -> list[Device]:
    """The devices that `0,1` or `cpu` name; without a word, every GPU, or what there is instead."""
    count = torch.cuda.device_count()
    if said is None:
        return [Device(str(number)) for number in range(count)] or [Device("auto")]
    if said == "cpu":
        return [Device("cpu")]
    names = said.split(",")
    if not all(name.isdigit() and int(name) < count for name in names) or len(set(names)) < len(names):
        raise UserError(
            f"--devices is {said}, expected cpu or numbers of GPUs such as 0,1; there are {count} GPUs here."
        )
    return [Device(name) for name in names]


@dataclass(frozen=True)
class Outcome:
    """How a comparison ended, by the names of its runs."""

    finished: list[str]
    failed: dict[str, str]
    """With the last line of its error."""
    left: list[str]
    """Not started or stopped, for want of time."""


@dataclass
class _Process:
    run: Planned
    device: Device
    handle: "subprocess.Popen[bytes]"
    began: float
    fresh: bool
    log: Path
    log_begins: int


def is_finished(out: Path, name: str) -> bool:
    """Whether a comparison's folder holds this run's scores."""
    return (out / "runs" / name / "metrics.json").exists()


class Queue:
    """Runs to train, `jobs` at a time on each device; with `minutes`, no longer than that.

    `keep` is told the name of each run as it finishes.
    """

    def __init__(
        self,
        plan: Plan,
        out: Path,
        devices: Sequence[Device],
        jobs: int,
        minutes: float | None,
        keep: Callable[[str], None],
        console: Console,
    ) -> None:
        self.out = out
        self.keep = keep
        self.ends = None if minutes is None else time.monotonic() + 60 * minutes
        self.total = len(plan.runs)
        scored = [run.name for run in plan.runs if is_finished(out, run.name)]
        self.failed = {name: why for name in scored if (why := damage(out / "runs" / name))}
        self.finished = [name for name in scored if name not in self.failed]
        self.waiting = [run for run in plan.runs if run.name not in scored]
        self.left: list[str] = []
        self.running: list[_Process] = []
        # One run on every device before any device gets its second.
        self.free = [device for _ in range(jobs) for device in devices]
        self.slots = len(self.free)
        self.several = len(devices) > 1
        self.runs_at_a_time = min(jobs, math.ceil(len(self.waiting) / len(devices)))
        """On one device, at most."""
        self.times = Times(out)
        self.reasons: dict[str, str] = read_record(out / FAILED, FailuresRecord) if (out / FAILED).exists() else {}
        self.console = console

    def train(self) -> Outcome:
        """Train what is not finished yet.

        In the end, also where it is interrupted, what still runs has a few seconds for a checkpoint.
        """
        with hearing(signal.SIGTERM, end):
            try:
                return self._work()
            finally:
                self._stop()

    def _work(self) -> Outcome:
        if self.finished:
            self._say(f"{len(self.finished)} of {self.total} runs are finished already.")
        for why in told_once(self.failed):
            self._say(f"[red]damaged:[/red] {escape(why)}")
        bar = Progress(
            TextColumn("{task.completed:.0f}/{task.total:.0f} runs"),
            BarColumn(),
            TextColumn("{task.fields[detail]}"),
            console=self.console,
            auto_refresh=False,
            transient=True,
            disable=not self.console.is_terminal,
        )
        with bar:
            task = bar.add_task("", total=self.total, detail="")
            while self.waiting or self.running:
                self._start_what_fits()
                self._take_back()
                if self.ends is not None and time.monotonic() > self.ends:
                    self._give_up()
                bar.update(task, completed=len(self.finished), detail=self._detail())
                bar.refresh()
                time.sleep(PAUSE if self.running else 0)
        return Outcome(self.finished, self.failed, self.left)

    def _stop(self) -> None:
        """End what still runs; it writes a checkpoint, and goes on from there next time, unless this was its end."""
        stopped, self.running = self.running, []
        for process in stopped:
            process.handle.terminate()
        ends = time.monotonic() + LAST_WORDS
        for process in stopped:
            try:
                process.handle.wait(max(0, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.handle.kill()
                process.handle.wait()
        for process in stopped:
            if is_finished(self.out, process.run.name):
                self._finish(process)

    def _start_what_fits(self) -> None:
        while self.free and self.waiting:
            run = self.waiting.pop(0)
            if self.ends is not None and time.monotonic() + MARGIN * self._expected(run.place) > self.ends:
                self.left.append(run.name)
                continue
            try:
                self.running.append(self._start(run, self.free[0]))
            except OSError as error:  # as where a folder stands in the place of its log
                self._fail(run.name, describe_os_error(error))
            else:
                self.free.pop(0)

    def _expected(self, place: Place) -> float:
        """The seconds that a run will take, and no fewer than its like have been running by now; 0 if nobody knows."""
        now, kind = time.monotonic(), (place.dataset, place.method)
        like = [now - one.began for one in self.running if (one.run.place.dataset, one.run.place.method) == kind]
        return max([self.times.expected(place) or 0, *like])

    def _start(self, run: Planned, device: Device) -> _Process:
        if self.reasons.pop(run.name, None):
            write_json(self.out / FAILED, self.reasons | self.failed)
        config = self.out / "configs" / f"{run.name}.yaml"
        said = relocated(run.config.model_dump(mode="json"), Path(), config.parent)
        write_text(config, yaml.safe_dump(said, sort_keys=False, allow_unicode=True))
        log = self.out / "logs" / f"{run.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        folder = self.out / "runs" / run.name
        fresh = not (folder / "config.yaml").exists()
        command = [sys.executable, "-m", "suture", "train", str(config), "-o", str(folder)]
        for override in device.overrides(run, self.slots):
            command += ["--set", override]
        environment = os.environ | {"PYTHONUNBUFFERED": "1", RUNS_AT_A_TIME: str(self.runs_at_a_time)}
        environment |= device.environment()
        if self.slots > 1:
            environment.setdefault("OMP_NUM_THREADS", str(cores(self.slots)))
        with log.open("ab") as file:
            begins = file.tell()
            handle = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
                preexec_fn=_end_with_parent,
                process_group=0,  # Ctrl-C is for this process, which then asks them to end
            )
        if not self.console.is_terminal:  # where there is no bar
            self._say(f"{run.name} {'begins' if fresh else 'goes on'} ({log})")
        return _Process(run, device, handle, time.monotonic(), fresh, log, begins)

    def _take_back(self) -> None:
        for process in [one for one in self.running if one.handle.poll() is not None]:
            self.running.remove(process)
            self.free.append(process.device)
            name = process.run.name
            if process.handle.returncode == 0 and is_finished(self.out, name):
                self._finish(process)
            else:
                error = last_error(process.handle.returncode, process.log, process.log_begins)
                where = f"GPU {process.device.name}, " if self.several else ""
                self._fail(name, error, f" ({where}{process.log})")

    def _fail(self, name: str, error: str, more: str = "") -> None:
        kind = _kind(name, error)
        before = next((other for other, its in self.failed.items() if _kind(other, its) == kind), None)
        self.failed[name] = error
        write_json(self.out / FAILED, self.reasons | self.failed)
        why = f"failed:[/red] {escape(error)}" if before is None else f"failed[/red] as {before} did"
        self._say(f"[red]{name} {why}{more}")

    def _finish(self, process: _Process) -> None:
        name, seconds = process.run.name, time.monotonic() - process.began
        self.finished.append(name)
        self.times.add(name, seconds, fresh=process.fresh)
        self._say(f"{name}: {_scores(self.out, name)}, {_duration(seconds)}; {self._detail()}")
        self.keep(name)

    def _give_up(self) -> None:
        unfinished = [process.run.name for process in self.running] + [run.name for run in self.waiting]
        self.waiting = []
        self._stop()
        self.left += [name for name in unfinished if name not in self.finished]

    def _detail(self) -> str:
        failed = [f"{len(self.failed)} failed"] if self.failed else []
        running = [f"{len(self.running)} running"] if self.running else []
        left = self._seconds_left()
        return ", ".join([*running, *failed, *([f"about {_duration(left)} left"] if left else [])]) or "done"

    def _seconds_left(self) -> float | None:
        """Estimated from the runs that are finished; None as long as there are none."""
        now = time.monotonic()
        work = [self.times.expected(run.place) for run in self.waiting]
        rest = [self.times.expected(process.run.place) for process in self.running]
        if None in work or None in rest:
            return None
        being_done = [max(0.0, (one or 0) - (now - p.began)) for one, p in zip(rest, self.running, strict=True)]
        return max([(sum(one or 0 for one in work) + sum(being_done)) / self.slots, *being_done])

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)


class Times:
    """What the finished runs of a folder took from start to end.

    Of those that came here without `times.json`, what their stages took; of those that were stopped in between, that or
    their last start, whichever took longer.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        path = out / TIMES
        self.seconds: dict[str, float] = read_record(path, SecondsRecord) if path.exists() else {}
        for run in sorted(out.glob("runs/*/metrics.json")):
            if run.parent.name not in self.seconds:
                self._take_stages(run.parent.name)

    def add(self, name: str, seconds: float, *, fresh: bool = True) -> None:
        """Take down a run that is finished, and what its last start took: all of it where it was `fresh`."""
        if not fresh:
            self._take_stages(name)
            seconds = max(seconds, self.seconds.get(name, 0))
        self.seconds[name] = round(seconds, 1)
        write_json(self.out / TIMES, self.seconds)

    def _take_stages(self, name: str) -> None:
        done = (self.out / "runs" / name).glob("stages/*/done.json")
        try:
            seconds = [read_record(path, StageRecord)["seconds"] for path in done]
        except UserError:  # of such a run is told elsewhere
            return
        if seconds and None not in seconds:
            self.seconds[name] = round(sum(seconds), 1)

    def expected(self, place: Place) -> float | None:
        """The mean of the runs that are most like this one; None where there is none at all."""
        known = [(Place.of_name(name), seconds) for name, seconds in self.seconds.items()]
        alike = (
            lambda other: other[:4] == place[:4],
            lambda other: (other.dataset, other.method) == (place.dataset, place.method),
            lambda other: other.method == place.method,
            lambda other: True,
        )
        for like in alike:
            found = [seconds for other, seconds in known if other is not None and like(other)]
            if found:
                return sum(found) / len(found)
        return None


def last_error(code: int, log: Path, begins: int = 0) -> str:
    """What a process that failed said last: its `error:` line, or the last line of a traceback."""
    if code < 0:
        name = signal.Signals(-code).name
        return f"killed by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")
    with log.open("rb") as file:
        file.seek(begins)
        text = file.read().decode("utf-8", errors="replace")
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).splitlines() if line.strip()]
    said = [line.removeprefix("error:").strip() for line in lines if line.startswith("error:")]
    return (said or lines or [f"exit code {code}"])[-1]


def told_once(failed: Mapping[str, str]) -> list[str]:
    """Why runs failed; a sentence that says the same of several stands once, with all their names.

    >>> told_once({"a": "runs/a is full.", "b": "runs/b is full.", "c": "No GPU."})
    ['a and b: runs/RUN is full.', 'c: No GPU.']
    """
    kinds: dict[str, list[str]] = {}
    for name, error in failed.items():
        kinds.setdefault(_kind(name, error), []).append(name)
    return [f"{listed(names)}: {kind if len(names) > 1 else failed[names[0]]}" for kind, names in kinds.items()]


def _kind(name: str, error: str) -> str:
    """What a run's error says, whichever run it is: many name its folder."""
    return error.replace(name, "RUN")


def _scores(out: Path, name: str) -> str:
    metrics = read_record(out / "runs" / name / "metrics.json", MetricsRecord)
    said = []
    for which, title in (("test", "mIoU"), ("val", "validation"), (COMPLETION, "completion")):
        value = metrics.get(which, {}).get("primary", {}).get("value")
        if value is not None:
            said.append(f"{title} {100 * value:.1f}")
    return ", ".join(said) or "no scores"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _end_with_parent() -> None:
    """Ask Linux to kill this process with its parent: a killed comparison must not hold its devices and locks."""
    if _LIBC is not None:
        _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
