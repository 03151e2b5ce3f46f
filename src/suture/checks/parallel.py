"""Work on many files in processes that a damaged file may kill."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

from suture.core.errors import UserError
from suture.core.workers import start_in_pool

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(function: Callable[[T], R], tasks: Sequence[T], workers: int) -> Iterator[tuple[T, R | None]]:
    """Yield each task with its result, in any order; None if the task killed its process."""
    if workers <= 1 or len(tasks) <= 1:
        yield from ((task, function(task)) for task in tasks)
        return
    left = dict(enumerate(tasks))
    width = workers
    while left:
        context = get_context("fork" if sys.platform == "linux" else None)  # forks need not import everything anew
        pool = ProcessPoolExecutor(min(width, len(left)), context, initializer=start_in_pool, initargs=(os.getpid(),))
        try:
            if width == 1:
                _require_running(pool)
            futures = {pool.submit(function, task): number for number, task in left.items()}
            for future in as_completed(futures):
                result = future.result()
                yield left.pop(futures[future]), result
        except BrokenProcessPool:
            # Which task was it? Alone, a process takes them in order: the first that is left when it breaks again.
            if width == 1:
                yield left.pop(min(left)), None
            width = workers if width == 1 else 1
        finally:
            pool.shutdown(cancel_futures=True)


def _require_running(pool: ProcessPoolExecutor) -> None:
    """Raise a `UserError` if processes die before they are given any work: no file is to blame then."""
    try:
        pool.submit(os.getpid).result()
    except BrokenProcessPool as error:
        script = 'in a script, call `check` below `if __name__ == "__main__":`'
        raise UserError(f"The processes that read frames die when they start: free memory; {script}.") from error
