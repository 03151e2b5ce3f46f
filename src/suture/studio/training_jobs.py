"""TrainingJobs: trainings in processes of their own, started, stopped and resumed from the studio."""

import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from suture.core.errors import UserError
from suture.core.io import LOCK, require_unlocked
from suture.core.schemas import STARTS
from suture.methods import METHODS
from suture.training.presets import presets
from suture.training.run_folder import Run

MAX_CURVE_POINTS = 300
MAX_LOG_CHARACTERS = 2000
_RUN_NAME = re.compile(r"\w[\w.-]{0,99}")


class TrainingJobs:
    """The runs of a dataset. A training is `suture train` in a process that outlives the studio.

    Args:
        root: Folder of the dataset.
        runs: Folder of its runs.
        logs: Folder for the output of the trainings.
    """

    def __init__(self, root: Path, runs: Path, logs: Path) -> None:
        self.root = root
        self.runs = runs
        self.logs = logs
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, name: str) -> Run:
        """Return a run by name; only folders directly below the folder of runs."""
        if not _RUN_NAME.fullmatch(name):
            raise UserError(f"The name {name[:100]!r} is not that of a run: use letters, digits, '-', '_' and '.'.")
        return Run(self.runs / name)

    def start(self, name: str, preset: str | None, method: str, settings: Sequence[str]) -> None:
        """Start a training under a new name."""
        run = self.run(name)
        if run.folder.exists() or self._pid(run) is not None:
            raise UserError(f"There is a run {name} already: give another name.")
        if method not in METHODS or (preset is not None and preset not in presets()):
            raise UserError(f"There is no method {method} or no preset {preset}: choose from the lists.")
        options = ["--preset", preset] if preset else []
        for setting in (f"method={method}", *settings):
            options += ["--set", setting]
        self._start(name, "train", str(self.root), "-o", str(run.folder), *options)

    def resume(self, name: str) -> None:
        """Continue a stopped training with the settings that it was started with."""
        run = self.run(name)
        if self._pid(run) is not None:
            raise UserError(f"{name} is running already.")
        self._start(name, "train", str(run.folder / "config.yaml"), "-o", str(run.folder))

    def stop(self, name: str) -> None:
        """Ask a training to stop; it keeps its last checkpoint."""
        if pid := self._pid(self.run(name)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def report(self, name: str, write: bool) -> Path:
        """Return the report of a run; with `write`, write it if it is missing or older than the scores."""
        run = self.run(name)
        path, scores = run.folder / "report.html", run.folder / "metrics.json"
        if not run.is_scored:
            raise UserError(f"{name} has no scores yet: wait for the end of its training.")
        if write and (not path.exists() or path.stat().st_mtime < scores.stat().st_mtime):
            done = subprocess.run([*_SUTURE, "report", str(run.folder)], capture_output=True, text=True, check=False)
            if done.returncode:
                raise UserError(_last_error(done.stderr) or f"The report of {name} cannot be written.")
        if not path.exists():
            raise UserError(f"{name} has no report: write it with `suture report {run.folder}`.")
        return path

    def states(self) -> list[dict[str, Any]]:
        """Describe all runs, the newest first."""
        folders = [path for path in self.runs.glob("*/") if (path / STARTS).exists()] if self.runs.is_dir() else []
        names = {path.name for path in folders} | self._started.keys()
        logs = {path.stem for path in self.logs.glob("*.log")}
        described = [self._describe(self.run(name)) for name in names | logs if _RUN_NAME.fullmatch(name)]
        return sorted(described, key=lambda one: -one["changed"])

    def _describe(self, run: Run) -> dict[str, Any]:
        log = self.logs / f"{run.folder.name}.log"
        text = log.read_text(encoding="utf-8", errors="replace")[-MAX_LOG_CHARACTERS:] if log.exists() else ""
        running = self._pid(run) is not None
        facts: dict[str, Any] = {
            "name": run.folder.name,
            "state": "running" if running else "finished" if run.is_finished else "stopped",
            "error": "" if running or run.is_finished else _last_error(text),
            "changed": max((path.stat().st_mtime for path in (run.folder, log) if path.exists()), default=0.0),
            "stages": [],
            "scores": {},
            "labels": None,
            "method": "",
            "trained": run.is_trained,
        }
        with suppress(UserError, KeyError):  # a run that has just begun lacks most of its files
            facts["method"] = run.method_name
            facts["labels"] = sum(map(len, run.labelled_frames.values()))
            facts["stages"] = [_curve(stage.name, stage.curve) for stage in run.stages]
            facts["scores"] = {split: scores["primary"]["value"] for split, scores in run.metrics.items()}
        return facts

    def _start(self, name: str, *arguments: str) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.logs / f"{name}.log").open("wb") as log:
            self._started[name] = subprocess.Popen(
                [*_SUTURE, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _pid(self, run: Run) -> int | None:
        """Return the process that trains a run, or 0 if it is one of another machine."""
        process = self._started.get(run.folder.name)
        if process is not None and process.poll() is None:
            return process.pid
        try:
            require_unlocked(run.folder)
        except UserError:
            holder = re.match(r"process ([0-9]+) on (.+)", (run.folder / LOCK).read_text(encoding="utf-8"))
            return int(holder[1]) if holder and holder[2] == platform.node() else 0
        return None


_SUTURE = (sys.executable, "-m", "suture")


def _curve(name: str, rows: Sequence[dict[str, float]]) -> dict[str, Any]:
    step = -(-len(rows) // MAX_CURVE_POINTS) or 1
    shown = [*rows[::step], *(rows[-1:] if (len(rows) - 1) % step else [])]
    return {"name": name, "points": [[row["step"], row["loss"]] for row in shown]}


def _last_error(text: str) -> str:
    errors = re.findall(r"error: (.+)", text)
    return errors[-1] if errors else ""
