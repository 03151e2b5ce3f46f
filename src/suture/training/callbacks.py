"""What watches a training stage: the checkpoint that survives a kill, the guard against NaN, the curve, the bar."""

import csv
import io
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins import TorchCheckpointIO
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from suture.core.errors import UserError
from suture.core.io import replacing, write_bytes
from suture.core.signals import ended_by, hearing
from suture.core.text import time_left
from suture.methods.stage import Stage
from suture.training.budget import images_of_a_step
from suture.training.run_folder import CURVE_COLUMNS, read_curve

LONGEST = 60.0
"""Seconds of work that a kill may cost, where steps are slow."""
LATE = 1
"""What a process says when so long has gone by, where it would say a signal's number: below all that it hears of."""


class Checkpoint(Callback):
    """Saves the whole state every few steps, or every minute, under a temporary name that is then renamed.

    Told to end (SIGTERM, Ctrl-C), it saves it then too; and so before every look of `Best`, each so many steps: that
    takes long, and may end by a mask. Of several processes each may have heard something else, and their clocks differ:
    `agree` gives all of them the largest of their numbers.
    """

    def __init__(
        self, path: Path, every: int, agree: Callable[[int], int] | None = None, looks: int | None = None
    ) -> None:
        self.path = path
        self.every = every
        self.agree = agree
        self.looks = looks
        self.kept: int | None = None
        """Steps that need not be done again, once they are known."""
        self.asked: int | None = None
        """The signal that asked for an end (SIGTERM, Ctrl-C): the step that is being done is the last one."""
        self._when = 0.0
        self._began = time.perf_counter()
        self._earlier = 0.0

    @property
    def seconds(self) -> float:
        """What the stage has taken so far; of earlier starts, as much as led up to their last checkpoint."""
        return self._earlier + time.perf_counter() - self._began

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._earlier = state_dict["seconds"]

    @contextmanager
    def hearing_signals(self) -> Iterator[None]:
        """Within, SIGTERM and Ctrl-C wait for the step's end; Ctrl-C says so, and a second one ends at once.

        Not so of several processes: a terminal and torchrun both tell them of one Ctrl-C.
        """
        alone = self.agree is None

        def hear(number: int, frame: object) -> None:
            if alone and number == signal.SIGINT == self.asked:
                raise KeyboardInterrupt
            self.asked = number
            if alone and number == signal.SIGINT:
                with suppress(OSError):  # straight to stderr: the console may be in the middle of a line
                    os.write(2, b"\nEnds after this step; Ctrl-C again ends at once.\n")

        # Where Ctrl-C is ignored, or somebody else's, it stays so.
        own = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with hearing(signal.SIGTERM, hear), hearing(signal.SIGINT, hear) if own else nullcontext():
            yield

    def on_train_start(self, trainer: L.Trainer, stage: Any) -> None:
        self.kept, self._when = trainer.global_step, time.monotonic()

    def heard(self) -> int:
        """The signal that asked for an end, or whether a checkpoint is late, or 0: of all processes together."""
        late = time.monotonic() - self._when > LONGEST
        own = self.asked or (LATE if late else 0)  # read once: a signal may come between any two lines
        heard = own if self.agree is None else self.agree(own)
        if heard > LATE:
            self.asked = heard
        return heard

    def on_train_batch_start(self, trainer: L.Trainer, stage: Any, batch: Any, batch_idx: int) -> None:
        # At the start of a batch all of the loop's counters agree; at its end Lightning has not yet counted it.
        if batch_idx % stage.settings.accumulate:
            return
        step, heard = trainer.global_step, self.heard()
        # Another look follows the last step.
        look = self.looks is not None and (step % self.looks == 0 or step == stage.total_steps - 1)
        if step != self.kept and (heard or look or step % self.every == 0):
            require_finite(stage, self.path, weights=True)
            trainer.save_checkpoint(self.path)  # the first process writes, but every one has to take part
            self.kept, self._when = step, time.monotonic()
        if heard > LATE:
            raise ended_by(heard)


class PlainCheckpoints(TorchCheckpointIO):
    """Made beside the old one: Lightning makes them in the folder for temporary files, and moves them from there."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        content = io.BytesIO()  # PyTorch's own errors hide a full disk
        torch.save(checkpoint, content)
        write_bytes(Path(path), content.getbuffer())


def require_finite(stage: Stage, checkpoint: Path, weights: bool = False) -> None:
    """Stop a training whose loss, or if asked whose weights, are no numbers any more."""
    loss = float(stage.last_loss)
    if not math.isfinite(loss):
        what = f"The loss of stage {stage.name} became {loss}"
    elif weights and not _finite(stage):
        what = f"The weights of stage {stage.name} are no numbers any more"
    else:
        return
    kept = f"the last good checkpoint is {checkpoint}" if checkpoint.exists() else "there was no checkpoint yet"
    raise UserError(
        f"{what} at step {stage.global_step}; {kept}. In another run folder, lower {stage.key}.optimizer.lr or "
        "set its clip; if compute.precision is 16, go on here with bf16 or 32."
    )


def _finite(stage: Stage) -> bool:
    tensors = [t for t in (*stage.parameters(), *stage.buffers()) if t.is_floating_point()]
    return bool(torch.stack([t.isfinite().all() for t in tensors]).all())


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
            writer = csv.DictWriter(file, CURVE_COLUMNS)
            writer.writeheader()
            writer.writerows(row for row in rows if row["step"] <= trainer.global_step)

    def on_train_batch_start(self, trainer: L.Trainer, stage: Any, batch: Any, batch_idx: int) -> None:
        self._lr = trainer.optimizers[0].param_groups[0]["lr"]  # after the step it is the next one's

    def on_train_batch_end(self, trainer: L.Trainer, stage: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        step = trainer.global_step
        if (batch_idx + 1) % stage.settings.accumulate or (step % self.every and step != stage.total_steps):
            return
        require_finite(stage, self.checkpoint)
        began, at = self._mark
        now = time.perf_counter()
        self._mark = (now, step)
        images = (step - at) * images_of_a_step(stage.facts())
        row = {
            "step": step,
            "loss": float(stage.last_loss),
            "lr": self._lr,
            "images_per_second": round(images / max(now - began, 1e-9), 2),
        }
        if stage.last_taught is not None:
            row["taught"] = round(float(stage.last_taught), 4)
        if trainer.is_global_zero:
            with self.path.open("a", newline="") as file:
                csv.DictWriter(file, CURVE_COLUMNS).writerow(row)
        for logger in trainer.loggers:
            logger.log_metrics({f"{stage.name}/{key}": value for key, value in row.items() if key != "step"}, step)


class Bar(Callback):
    """The progress of one stage: stage k of n, loss, images per second, time left.

    Where nobody watches (a log file), a plain line now and then takes the place of the moving bar.
    """

    def __init__(self, title: str, console: Console) -> None:
        self.title = title
        self.console = console
        self.interval = 0.5 if console.is_terminal else 30.0

    def on_train_start(self, trainer: L.Trainer, stage: Any) -> None:
        self._progress = progress_bar(self.console)
        self._progress.start()
        self._task = self._progress.add_task(
            self.title, total=stage.total_steps, completed=trainer.global_step, detail=""
        )
        self._began, self._first = time.perf_counter(), trainer.global_step
        self._shown = self._began
        if not self.console.is_terminal:
            begins = f"goes on at step {trainer.global_step}" if trainer.global_step else "begins"
            self.console.print(f"{self.title} {begins}, {stage.total_steps} steps", highlight=False, soft_wrap=True)

    def on_train_batch_end(self, trainer: L.Trainer, stage: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        now, step = time.perf_counter(), trainer.global_step
        if now - self._shown < self.interval and step < stage.total_steps:
            return  # reading the loss waits for the device: not at every step
        self._shown = now
        rate = (step - self._first) * images_of_a_step(stage.facts()) / max(now - self._began, 1e-9)
        detail = f"loss {float(stage.last_loss):.3f} {rate:.1f} img/s"
        self._progress.update(self._task, completed=step, detail=detail)
        if not self.console.is_terminal and step < stage.total_steps:
            left = time_left(stage.total_steps - step, step - self._first, now - self._began)
            line = f"{self.title} {step}/{stage.total_steps} {detail}, {left}"
            self.console.print(line, highlight=False, soft_wrap=True)

    def on_train_end(self, trainer: L.Trainer, stage: Any) -> None:
        self._progress.stop()

    def on_exception(self, trainer: L.Trainer, stage: Any, exception: BaseException) -> None:
        if hasattr(self, "_progress"):
            self._progress.update(self._task, completed=trainer.global_step)  # more than was last shown
            self._progress.stop()


def progress_bar(console: Console) -> Progress:
    """The bar that every long step of a run shows; it takes the room that the numbers leave."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[detail]}"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        console=console,
        expand=True,
    )


@contextmanager
def bar(title: str, total: int, console: Console) -> Iterator[tuple[Progress, TaskID]]:
    """A bar for a step that is not a training stage."""
    with progress_bar(console) as progress:
        yield progress, progress.add_task(title, total=total, detail="")


def memory_peak() -> int | None:
    """Peak GPU memory of this process in bytes since the last reset; None on the CPU."""
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
