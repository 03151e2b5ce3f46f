"""Errors of a long training as messages: full disk, lost file, lost process, lack of memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from suture.core.errors import UserError, describe_os_error, is_full


@contextmanager
def explain_failures(folder: Path) -> Iterator[None]:
    """Turn failures of disk, memory or processes into a `UserError` with the way to go on in a run folder."""
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
        problem = _message(error) if _is_from_worker(error) else describe_os_error(error)
        raise UserError(f"{problem}: fix it, then {go_on}.") from error
    except UserError as error:
        if not _is_from_worker(error):
            raise
        raise UserError(_message(error)) from error
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "/gloo/" in str(error):  # gloo's errors have no class of their own
            raise UserError(
                f"Another process of this run has ended, or cannot be reached any more: read its output, then {go_on}."
            ) from error
        if not is_lost_loader(error):
            raise
        raise UserError(
            "A loader process was killed, probably for lack of memory or of shared memory (/dev/shm): lower "
            f"compute.workers, or give more; then {go_on}."
        ) from error


def is_lost_loader(error: BaseException) -> bool:
    """Test whether a loader process ended without an error of its own."""
    return "DataLoader worker" in str(error) and not _is_from_worker(error)


def _is_from_worker(error: BaseException) -> bool:
    """Test whether an error happened in a loader process; its text is then a whole traceback."""
    return str(error).startswith("Caught ")


def _message(error: Exception) -> str:
    """Return the message of an error in a loader process: the last line, without the exception's name."""
    return [line for line in str(error).splitlines() if line.strip()][-1].partition(": ")[2]
