"""What watches a training stage: the checkpoint that survives a kill, the guard against NaN, the curve, the bar."""

import csv
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from suture.errors import UserError
from suture.files import replacing
from suture.methods.stage import Stage

COLUMNS = ("step", "loss", "lr", "images_per_second")


class Checkpoint(Callback):
    """Saves the whole state every few steps, under a temporary name that is then renamed."""

    def __init__(self, path: Path, every: int) -> None:
        self.path = path
        self.every = every
        self._saved = -1

    def on_train_start(self, trainer: L.Trainer, stage: Any) -> None:
        self._saved = trainer.global_step

    def on_train_batch_start(self, trainer: L.Trainer, stage: Any, batch: Any, batch_idx: int) -> None:
        # At the start of a batch all of the loop's counters agree; at its end Lightning has not yet counted it.
        step = trainer.global_step
        if batch_idx % stage.settings.accumulate or step == self._saved or step % self.every:
            return
        refuse_nan(stage, self.path)
        if trainer.is_global_zero:
            with replacing(self.path) as temporary:
                trainer.save_checkpoint(temporary)
        else:
            trainer.save_checkpoint(self.path)  # writes nothing here, but every process has to take part
        self._saved = step


def refuse_nan(stage: Stage, checkpoint: Path) -> None:
    """Stop a training whose loss is no number any more, before it spoils the last good checkpoint."""
    if math.isfinite(float(stage.last_loss)):
        return
    kept = f"the last good checkpoint is {checkpoint}" if checkpoint.exists() else "there was no checkpoint yet"
    raise UserError(
        f"The loss of stage {stage.name} became {float(stage.last_loss)} at step {stage.global_step}; {kept}. "
        f"Lower method.{stage.name}.optimizer.lr or set its clip, and with precision 16 try bf16 or 32."
    )


class Curve(Callback):
    """Appends loss, learning rate and speed to a CSV file, and hands them to Lightning's loggers."""

    def __init__(self, path: Path, every: int, checkpoint: Path) -> None:
        self.path = path
        self.every = every
        self.checkpoint = checkpoint

    def on_train_start(self, trainer: L.Trainer, stage: Any) -> None:
        self._mark = (time.perf_counter(), trainer.global_step)
        if not trainer.is_global_zero:
            return
        # What a killed run logged after its last checkpoint is computed again: it must not stand there twice.
        rows = read_curve(self.path)
        with replacing(self.path) as temporary, temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(row for row in rows if row["step"] <= trainer.global_step)

    def on_train_batch_end(self, trainer: L.Trainer, stage: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        step = trainer.global_step
        if (batch_idx + 1) % stage.settings.accumulate or (step % self.every and step != stage.total_steps):
            return
        refuse_nan(stage, self.checkpoint)
        began, at = self._mark
        now = time.perf_counter()
        self._mark = (now, step)
        row = {
            "step": step,
            "loss": float(stage.last_loss),
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
            "images_per_second": round((step - at) * stage.settings.batch / max(now - began, 1e-9), 2),
        }
        if trainer.is_global_zero:
            with self.path.open("a", newline="") as file:
                csv.DictWriter(file, COLUMNS).writerow(row)
        for logger in trainer.loggers:
            logger.log_metrics({f"{stage.name}/{key}": value for key, value in row.items() if key != "step"}, step)


def read_curve(path: Path) -> list[dict[str, float]]:
    """The rows of a stage's `metrics.csv`; none where there is no file, and no half-written last row."""
    if not path.exists():
        return []
    rows = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            try:
                rows.append({key: int(row[key]) if key == "step" else float(row[key]) for key in COLUMNS})
            except (TypeError, ValueError):
                continue
    return rows


class Bar(Callback):
    """The progress of one stage: stage k of n, loss, images per second, time left."""

    def __init__(self, title: str, console: Console) -> None:
        self.title = title
        self.console = console

    def on_train_start(self, trainer: L.Trainer, stage: Any) -> None:
        self._progress = progress_bar(self.console)
        self._progress.start()
        self._task = self._progress.add_task(
            self.title, total=stage.total_steps, completed=trainer.global_step, detail=""
        )
        self._began, self._first, self._shown = time.perf_counter(), trainer.global_step, 0.0

    def on_train_batch_end(self, trainer: L.Trainer, stage: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        now = time.perf_counter()
        if now - self._shown < 0.5 and trainer.global_step < stage.total_steps:
            return  # reading the loss waits for the device: not at every step
        self._shown = now
        rate = (trainer.global_step - self._first) * stage.settings.batch / max(now - self._began, 1e-9)
        detail = f"loss {float(stage.last_loss):.3f}  {rate:.1f} img/s"
        self._progress.update(self._task, completed=trainer.global_step, detail=detail)

    def on_train_end(self, trainer: L.Trainer, stage: Any) -> None:
        self._progress.stop()

    def on_exception(self, trainer: L.Trainer, stage: Any, exception: BaseException) -> None:
        if hasattr(self, "_progress"):
            self._progress.stop()


def progress_bar(console: Console) -> Progress:
    """The bar that every long step of a run shows."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.completed:>5.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )


@contextmanager
def bar(title: str, total: int, console: Console) -> Iterator[tuple[Progress, TaskID]]:
    """A bar for a step that is not a training stage."""
    with progress_bar(console) as progress:
        yield progress, progress.add_task(title, total=total, detail="")


def memory_peak() -> int | None:
    """Peak GPU memory of this process in bytes since the last reset; None on the CPU."""
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
