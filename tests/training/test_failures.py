"""What can go wrong in a long training ends it clearly, with the last good checkpoint kept."""

import errno
import io
import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from suture.core.errors import UserError
from suture.methods.stage import Stage
from suture.training.callbacks import Checkpoint
from suture.training.config import Config
from suture.training.explain_failures import explain_failures
from suture.training.loop import TrainingLoop

EVERY_STEP = "compute.checkpoint_every=1"


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[Stage], Any]], None]:
    """Let something happen in the training step after so many steps."""
    original = Stage.forward

    def at(step: int, happens: Callable[[Stage], Any]) -> None:
        def forward(self: Stage, batch: Any, part: int) -> Any:
            loss = original(self, batch, part)
            return loss if self.global_step != step else (happens(self), loss)[1]

        monkeypatch.setattr(Stage, "forward", forward)

    return at


def saved_step(folder: Path) -> int:
    return int(torch.load(folder / "stages/1-train/last.ckpt", weights_only=True)["global_step"])


def test_nan_in_the_loss(
    broken: Any, supervised: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    def spoil(stage: Stage) -> None:
        stage.last_loss = torch.tensor(float("nan"))

    broken(2, spoil)
    with pytest.raises(
        UserError, match=r"The loss of stage train became nan at step 3; the last good checkpoint is"
    ) as e:
        train_quietly(supervised(EVERY_STEP), tmp_path)
    assert str(tmp_path / "stages/1-train/last.ckpt") in str(e.value)
    assert "method.train.optimizer.lr" in str(e.value)
    assert saved_step(tmp_path) == 2


@pytest.mark.parametrize("step", [2, 3])
def test_weights_that_are_no_numbers_under_a_loss_that_is_one(
    step: int, broken: Any, supervised: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    """Between two checkpoints, and at the very end: neither a checkpoint nor an outcome is written."""

    def spoil(stage: Stage) -> None:
        next(iter(stage.segmenter.head.parameters())).data.fill_(float("nan"))

    broken(step, spoil)
    with pytest.raises(UserError, match=f"The weights of stage train became NaN or infinite at step {step + 1}"):
        train_quietly(supervised(EVERY_STEP), tmp_path)
    assert saved_step(tmp_path) == step
    checkpoint = torch.load(tmp_path / "stages/1-train/last.ckpt", weights_only=True)
    assert all(t.isfinite().all() for t in checkpoint["state_dict"].values())
    assert not (tmp_path / "stages/1-train/weights.safetensors").exists()


def test_a_file_that_cannot_grow_any_more(
    supervised: Callable[..., Config],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A real failure of the file system, in the middle of writing a checkpoint."""
    original = Checkpoint.save
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def save(self: Checkpoint, loop: TrainingLoop) -> None:
        limit = 1_000_000 if loop.step == 2 else limits[0]
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
        try:
            original(self, loop)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    monkeypatch.setattr(Checkpoint, "save", save)
    with pytest.raises(UserError, match=r"The disk is full .*: make room, then start the same command again"):
        train_quietly(supervised(EVERY_STEP), tmp_path)
    assert saved_step(tmp_path) == 1
    assert sorted(path.name for path in (tmp_path / "stages/1-train").iterdir()) == [
        "last.ckpt",
        "metrics.csv",
        "tensorboard",
    ]
    monkeypatch.undo()
    train_quietly(supervised(EVERY_STEP), tmp_path)


def foreign(content: dict[str, Any]) -> Callable[[bytes], bytes]:
    """A whole file of `torch.save` with other content."""

    def replace(_: bytes) -> bytes:
        file = io.BytesIO()
        torch.save(content, file)
        return file.getvalue()

    return replace


def other_shapes(whole: bytes) -> bytes:
    """A checkpoint whose optimiser has a state of other weights."""
    content = torch.load(io.BytesIO(whole), weights_only=True)
    for moments in content["optimizer"]["state"].values():
        moments["exp_avg"] = torch.zeros(3)
    return foreign(content)(whole)


@pytest.mark.parametrize(
    "damage",
    [
        other_shapes,
        foreign({"a": torch.ones(2)}),
        foreign({"seconds": [], "global_step": "x"}),
        lambda _: b"",
        lambda whole: whole[:1000],
        lambda whole: whole.replace(b"global_step", b"global_st3p"),
    ],
)
def test_a_checkpoint_that_is_damaged_or_cut_off(
    damage: Callable[[bytes], bytes],
    supervised: Callable[..., Config],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
    broken: Any,
) -> None:
    broken(2, lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train_quietly(supervised(EVERY_STEP), tmp_path)
    checkpoint = tmp_path / "stages/1-train/last.ckpt"
    checkpoint.write_bytes(damage(checkpoint.read_bytes()))
    with pytest.raises(UserError, match=r"last\.ckpt is damaged or cut off, .*, or remove it to start the stage again"):
        train_quietly(supervised(EVERY_STEP), tmp_path)


def test_a_full_disk(
    supervised: Callable[..., Config],
    train_quietly: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "x.ckpt")

    monkeypatch.setattr(Checkpoint, "save", full)
    with pytest.raises(UserError, match=re.escape("The disk is full (x.ckpt): make room")):
        train_quietly(supervised(EVERY_STEP), tmp_path)


@pytest.mark.usefixtures("without_store")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_lost_frame_without_the_store(
    workers: int,
    supervised: Callable[..., Config],
    train_quietly: Callable[..., Any],
    dataset: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the process itself or in a loader's: one sentence either way."""
    shutil.copytree(dataset, tmp_path / "data")
    original = Checkpoint.save

    def save_and_lose(self: Checkpoint, loop: TrainingLoop) -> None:
        original(self, loop)
        for frame in (tmp_path / "data/videos").rglob("*.png"):
            frame.unlink()

    monkeypatch.setattr(Checkpoint, "save", save_and_lose)
    settings = (f"data.root={tmp_path}/data", f"compute.workers={workers}", EVERY_STEP)
    with pytest.raises(UserError) as caught:  # in the end: some batches are fetched ahead
        train_quietly(supervised(*settings, "method.train.steps=50"), tmp_path / "run")
    text = str(caught.value)
    assert "frame_" in text
    assert len(text.splitlines()) == 1
    assert "Traceback" not in text
    assert saved_step(tmp_path / "run") >= 1


def test_out_of_gpu_memory(
    broken: Any, supervised: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    def fill(stage: Stage) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    broken(2, fill)
    with pytest.raises(UserError, match=r"The GPU ran out of memory: .* smaller batch") as caught:
        train_quietly(supervised(EVERY_STEP), tmp_path)
    assert f"last checkpoint in {tmp_path}" in str(caught.value)
    assert saved_step(tmp_path) == 2


def said(error: Exception) -> str:
    with pytest.raises(UserError) as caught, explain_failures(Path("run")):
        raise error
    return str(caught.value)


def test_what_happens_in_a_loader_process_is_one_sentence() -> None:
    trace = "Caught {} in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File ...\n{}\n"
    assert said(UserError(trace.format("UserError", "suture.core.errors.UserError: a.png is gone: put it back."))) == (
        "a.png is gone: put it back."
    )
    lost = "FileNotFoundError: [Errno 2] No such file or directory: '/cache/x.npy'"
    text = said(FileNotFoundError(trace.format("FileNotFoundError", lost)))
    assert text.startswith("[Errno 2] No such file or directory: '/cache/x.npy': fix it, then start the same command")
    assert "compute.workers" in said(RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "))


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shape"), explain_failures(Path("run")):
        raise RuntimeError("shape mismatch")
    with pytest.raises(UserError, match=r"^two\nlines$"), explain_failures(Path("run")):
        raise UserError("two\nlines")
    assert said(PermissionError(errno.EACCES, "Permission denied", "x")).startswith("x cannot be read or written (Perm")


def test_changed_pseudo_labels_are_not_learnt_from(
    finished: Path, pgvcl: Callable[..., Config], train_quietly: Callable[..., Any], tmp_path: Path
) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    for name in ("stages/3-contrast", "stages/4-finetune"):
        shutil.rmtree(run / name)
    (run / "metrics.json").unlink()
    file = run / "pseudo/case02.labels.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"pseudo labels in .* were changed since they were written"):
        train_quietly(pgvcl(), run)
