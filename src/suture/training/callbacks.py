"""Callbacks of a training loop: checkpoint, check for NaN, loss curve, progress."""

import csv
import io
import math
import os
import signal
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.progress import TaskID

from suture.core.errors import UserError
from suture.core.io import replacing, require_regular_file, write_bytes
from suture.core.progress import ProgressBar
from suture.core.signals import ended_by, handle_signal
from suture.core.text import time_left
from suture.methods.stage import Stage
from suture.models.torch_file import DAMAGE, read_torch_file
from suture.training.effort import images_of_a_step
from suture.training.loop import Callback, TrainingLoop
from suture.training.run_folder import CURVE_COLUMNS, read_curve

if TYPE_CHECKING:  # takes seconds to import
    from lightning.pytorch.loggers import Logger

MAX_CHECKPOINT_AGE_S = 60.0
"""Longest time (s) between two checkpoints, even with slow steps."""
CHECKPOINT_DUE = 1
"""Sent by a process whose checkpoint is too old, in place of a signal's number; smaller than every handled signal."""


class Checkpoint(Callback):
    """Saves the whole state every few steps, after `MAX_CHECKPOINT_AGE_S`, and when a signal ends the training.

    Args:
        path: The file.
        every: Steps between checkpoints.
        agree: Maximum of a number over all processes; None with one process.
    """

    def __init__(self, path: Path, every: int, agree: Callable[[int], int] | None = None) -> None:
        self.path = path
        self.every = every
        self.agree = agree
        self.kept: int | None = None
        """Step of the latest checkpoint; None before the first one was read."""
        self.signal: int | None = None
        """Received signal that ends the training (SIGTERM, Ctrl-C)."""
        self._saved_at = 0.0
        self._began = time.perf_counter()
        self._earlier = 0.0

    @property
    def seconds(self) -> float:
        """Time (s) of the stage so far; of earlier starts, the time until their last checkpoint."""
        return self._earlier + time.perf_counter() - self._began

    def load(self, loop: TrainingLoop) -> None:
        """Resume from the file."""
        require_regular_file(self.path)
        try:
            if not is_whole(self.path):
                raise ValueError("wrong checksum")
            state = read_torch_file(self.path)
            self._earlier = float(state["seconds"])
            if not 0 <= int(state["global_step"]) <= loop.stage.total_steps:
                raise ValueError("a step beyond the stage")
            loop.load_state_dict(state)
        except (UserError, *DAMAGE) as error:
            raise UserError(
                f"{self.path} is damaged or cut off, or of another stage: restore an intact copy, or remove it to "
                "start the stage again."
            ) from error

    def save(self, loop: TrainingLoop) -> None:
        """Replace the file by the current state, written by the first process."""
        require_finite(loop.stage, self.path, weights=True)
        if loop.is_first:
            content = io.BytesIO()  # PyTorch's own errors hide a full disk
            torch.save(loop.state_dict() | {"seconds": self.seconds}, content)
            write_bytes(self.path, content.getbuffer())
        self.kept, self._saved_at = loop.step, time.monotonic()

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Within, SIGTERM and Ctrl-C wait for the end of the step; a second Ctrl-C ends at once.

        With several processes, a second Ctrl-C waits too: the terminal and torchrun both send one.
        """
        alone = self.agree is None

        def handle(number: int, frame: object) -> None:
            if alone and number == signal.SIGINT == self.signal:
                raise KeyboardInterrupt
            self.signal = number
            if alone and number == signal.SIGINT:
                with suppress(OSError):  # not through the console, which may be in the middle of a line
                    os.write(2, b"\nEnds after this step; Ctrl-C again ends at once.\n")

        # Keep a handler of another program, and keep Ctrl-C ignored if it is.
        own = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with handle_signal(signal.SIGTERM, handle), handle_signal(signal.SIGINT, handle) if own else nullcontext():
            yield

    def on_start(self, loop: TrainingLoop) -> None:
        self.kept, self._saved_at = loop.step, time.monotonic()

    def request(self) -> int:
        """Return the signal that any process received, `CHECKPOINT_DUE`, or 0; equal in all processes."""
        is_due = time.monotonic() - self._saved_at > MAX_CHECKPOINT_AGE_S
        own = self.signal or (CHECKPOINT_DUE if is_due else 0)  # read once: a signal may come between two lines
        request = own if self.agree is None else self.agree(own)
        if request > CHECKPOINT_DUE:
            self.signal = request
        return request

    def on_step_start(self, loop: TrainingLoop) -> None:
        request = self.request()
        if loop.step != self.kept and (request or loop.step % self.every == 0):
            self.save(loop)
        if request > CHECKPOINT_DUE:
            raise ended_by(request)


def is_whole(checkpoint: Path) -> bool:
    """Test that every part of a checkpoint has its checksum."""
    try:
        with zipfile.ZipFile(checkpoint) as parts:
            return parts.testzip() is None
    except DAMAGE:
        return False


def require_finite(stage: Stage, checkpoint: Path, weights: bool = False) -> None:
    """Raise `UserError` if the loss of a stage, or one of its weights, is NaN or infinite."""
    loss = float(stage.last_loss)
    if not math.isfinite(loss):
        problem = f"The loss of stage {stage.name} became {loss}"
    elif weights and not _is_finite(stage):
        problem = f"The weights of stage {stage.name} became NaN or infinite"
    else:
        return
    kept = f"the last good checkpoint is {checkpoint}" if checkpoint.exists() else "there was no checkpoint yet"
    raise UserError(
        f"{problem} at step {stage.global_step}; {kept}. In another run folder, lower {stage.key}.optimizer.lr or "
        "set its clip; if compute.precision is 16, resume here with bf16 or 32."
    )


def _is_finite(stage: Stage) -> bool:
    tensors = [t for t in (*stage.parameters(), *stage.buffers()) if t.is_floating_point()]
    return bool(torch.stack([t.isfinite().all() for t in tensors]).all())


class Curve(Callback):
    """Appends loss, learning rate and speed to a CSV file, and passes them to loggers."""

    def __init__(
        self, path: Path, every: int, checkpoint: Path, loggers: Sequence["TensorBoard | Logger"] = ()
    ) -> None:
        self.path = path
        self.every = every
        self.checkpoint = checkpoint
        self.loggers = loggers

    def on_start(self, loop: TrainingLoop) -> None:
        self._mark = (time.perf_counter(), loop.step)
        if not loop.is_first:
            return
        # Rows after the last checkpoint of a killed run are computed again.
        rows = [row for row in read_curve(self.path) if row["step"] <= loop.step]
        with replacing(self.path) as temporary, temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, CURVE_COLUMNS)
            writer.writeheader()
            writer.writerows(rows)

    def on_step_end(self, loop: TrainingLoop) -> None:
        stage, step = loop.stage, loop.step
        if step % self.every and step != stage.total_steps:
            return
        require_finite(stage, self.checkpoint)
        (began, first), now = self._mark, time.perf_counter()
        self._mark = (now, step)
        images = (step - first) * images_of_a_step(stage.facts())
        row = {
            "step": step,
            "loss": float(stage.last_loss),
            "lr": loop.optimizer.param_groups[0]["lr"],
            "images_per_second": round(images / max(now - began, 1e-9), 2),
        }
        if stage.last_taught is not None:
            row["taught"] = round(float(stage.last_taught), 4)
        if loop.is_first:
            with self.path.open("a", newline="") as file:
                csv.DictWriter(file, CURVE_COLUMNS).writerow(row)
        for logger in self.loggers:
            logger.log_metrics({f"{stage.name}/{key}": value for key, value in row.items() if key != "step"}, step)

    def on_close(self, loop: TrainingLoop) -> None:
        for logger in self.loggers:
            logger.finalize("success")


class TensorBoard:
    """TensorBoard's files, with the interface of Lightning's loggers."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(folder)

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Write values of one step."""
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def finalize(self, status: str) -> None:
        """Close the files."""
        self.writer.close()


class StageProgress(Callback):
    """Progress of one stage: stage k of n, loss, images per second, time left.

    In a log file, a line now and then takes the place of the moving bar.
    """

    def __init__(self, title: str, console: Console) -> None:
        self.title = title
        self.console = console
        self.interval = 0.5 if console.is_terminal else 30.0
        self._progress: ProgressBar | None = None

    def on_start(self, loop: TrainingLoop) -> None:
        total = loop.stage.total_steps
        self._progress = ProgressBar(self.console, keep=True)
        self._progress.start()
        self._task = self._progress.add_task(self.title, total=total, completed=loop.step)
        self._began, self._first = time.perf_counter(), loop.step
        self._shown = self._began
        if not self.console.is_terminal:
            begins = f"goes on at step {loop.step}" if loop.step else "begins"
            self.console.print(f"{self.title} {begins}, {total} steps", highlight=False, soft_wrap=True)

    def on_step_end(self, loop: TrainingLoop) -> None:
        now, step, stage = time.perf_counter(), loop.step, loop.stage
        if self._progress is None or (now - self._shown < self.interval and step < stage.total_steps):
            return  # reading the loss waits for the device: not at every step
        self._shown = now
        rate = (step - self._first) * images_of_a_step(stage.facts()) / max(now - self._began, 1e-9)
        detail = f"loss {float(stage.last_loss):.3f} {rate:.1f} img/s"
        self._progress.update(self._task, completed=step, detail=detail)
        if not self.console.is_terminal and step < stage.total_steps:
            left = time_left(stage.total_steps - step, step - self._first, now - self._began)
            line = f"{self.title} {step}/{stage.total_steps} {detail}, {left}"
            self.console.print(line, highlight=False, soft_wrap=True)

    def on_close(self, loop: TrainingLoop) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=loop.step)  # after an error, more than was shown last
            self._progress.stop()


@contextmanager
def bar(title: str, total: int, console: Console) -> Iterator[tuple[ProgressBar, TaskID]]:
    """Progress bar of a step that is not a training stage."""
    with ProgressBar(console, keep=True) as progress:
        yield progress, progress.add_task(title, total=total)


def memory_peak() -> int | None:
    """Peak GPU memory of this process in bytes since the last reset; None on the CPU."""
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
