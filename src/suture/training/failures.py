"""What can go wrong in a long training, told in one sentence; what was computed so far is kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from suture.core.errors import UserError, describe_os_error, is_full


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn a full disk, a lost file or process, a lack of memory into a `UserError` that says how to go on here."""
    go_on = f"start the same command again to go on from the last checkpoint in {folder}"
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"The GPU ran out of memory: free it of other programs and {go_on}; or begin another run with a smaller "
            "batch or data.size, or with more accumulate in that stage."
        ) from error
    except OSError as error:
        if is_full(error):
            raise UserError(f"{describe_os_error(error, folder)}: make room, then {go_on}.") from error
        what = _message(error) if _of_worker(error) else describe_os_error(error)
        raise UserError(f"{what}: mend it, then {go_on}.") from error
    except UserError as error:
        if not _of_worker(error):
            raise
        raise UserError(_message(error)) from error
    except RuntimeError as error:
        if _lost_process(error):
            raise UserError(
                f"Another process of this run has ended, or cannot be reached any more: see what it said, then {go_on}."
            ) from error
        if not lost_loader(error):
            raise
        raise UserError(
            "A loader process was killed, probably for lack of memory or of shared memory (/dev/shm): lower "
            f"compute.workers, or give more; then {go_on}."
        ) from error


def lost_loader(error: BaseException) -> bool:
    """Whether an error says that a loader's process is gone, by no error of its own."""
    return "DataLoader worker" in str(error) and not _of_worker(error)


def _lost_process(error: BaseException) -> bool:
    """Whether an error says that another process no longer answers; gloo's has no class of its own."""
    return isinstance(error, dist.DistError) or "/gloo/" in str(error)


def _of_worker(error: BaseException) -> bool:
    """Whether an error happened in a loader worker: its text is then the worker's whole traceback."""
    return str(error).startswith("Caught ")


def _message(error: Exception) -> str:
    """The message itself; that of a worker's error is the last line, after the exception's name."""
    if not _of_worker(error):
        return str(error)
    return [line for line in str(error).splitlines() if line.strip()][-1].partition(": ")[2]
