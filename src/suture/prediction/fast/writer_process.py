"""A process that makes files of predictions: `suture.prediction.fast.writer_pool` starts it and talks to it.

It takes what it is told at once, as there is never more than the shared memory holds, and answers batch by batch.
"""

import socket
import sys
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from suture.core.errors import UserError
from suture.prediction.clip_files import (
    COMPARING,
    ClipFiles,
    Done,
    Finished,
    Plan,
    Seen,
    agreement,
    with_the_one_before,
)
from suture.prediction.fast.shared_memory import Line, Memory
from suture.prediction.fast.writer_pool import Answer
from suture.prediction.overlap import TOGETHER, several
from suture.prediction.stability import Small
from suture.prediction.video_writer import Taken


def main() -> None:
    """Write clip after clip for the process at the other end of the line, until it hangs up or is gone."""
    end, file, threads = map(int, sys.argv[1:])
    line, memory = Line(socket.socket(fileno=end)), Memory(file)
    with suppress(EOFError, BrokenPipeError):
        while True:
            plan = line.hear()
            try:
                _write(plan, line, memory, threads)
            except EOFError:
                raise
            except Exception as error:
                line.say(_in_words(error))
            else:
                line.say(None)


def _write(plan: Plan, line: Line, memory: Memory, threads: int) -> None:
    with ClipFiles(plan) as files, ExitStack() as pools:
        clip = _Clip(files, line, threads, pools)
        while (batch := line.hear()) is not None:
            clip.begin(batch.seen(memory))
        clip.end()


class _Added(NamedTuple):
    """A batch on its way into the files."""

    frames: list[Finished]
    comparing: list[Future[list[Done]]]
    taken: list[Taken]


class _Clip:
    """The steps of a clip, each with threads of its own."""

    def __init__(self, files: ClipFiles, line: Line, threads: int, pools: ExitStack) -> None:
        self._files, self._line = files, line
        self._finishing, self._comparing = ThreadPoolExecutor(threads), ThreadPoolExecutor(COMPARING)
        self._adding, self._answering = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        for pool in (self._finishing, self._comparing, self._adding, self._answering):
            pools.callback(partial(pool.shutdown, cancel_futures=True))

    def begin(self, batch: list[Seen]) -> None:
        finishing = [self._finishing.submit(self._finish, part) for part in several(batch, TOGETHER)]
        self._answering.submit(self._answer, self._adding.submit(self._add, finishing))

    def end(self) -> None:
        """Wait until all is answered."""
        self._answering.submit(int).result()

    def _finish(self, part: list[Seen]) -> list[Finished]:
        return [self._files.finish(seen) for seen in part]

    def _add(self, finishing: list[Future[list[Finished]]]) -> _Added:
        """All that needs the order; encoders take the frames of later batches while they are at work on these."""
        added = _Added([], [], [])
        for part in finishing:
            before = added.frames[-1].small if added.frames else None
            pairs = list(with_the_one_before(part.result(), before))
            added.comparing.append(self._comparing.submit(_agreements, pairs))
            for _, one in pairs:
                added.taken.append(self._files.add(one))
                added.frames.append(one)
        return added

    def _answer(self, adding: Future[_Added]) -> None:
        """Say that a batch is written, once its memory is needed no more."""
        try:
            frames, comparing, taken = adding.result()
            for each in taken:
                if each is not None:
                    each.result()
            first, last = (replace(one, mask=None, overlay=None) for one in (frames[0], frames[-1]))
            self._line.say(Answer([done for part in comparing for done in part.result()], first, last))
        except Exception as error:
            self._line.say(_in_words(error))


def _agreements(pairs: list[tuple[Small | None, Finished]]) -> list[Done]:
    return [agreement(*pair) for pair in pairs]


def _in_words(error: Exception) -> Exception:
    """An error that can be sent, and says the same."""
    if isinstance(error, UserError):
        return UserError(str(error))
    if isinstance(error, OSError) and error.errno is not None:
        return OSError(error.errno, error.strerror)
    return RuntimeError("".join(traceback.format_exception(error)))


if __name__ == "__main__":
    main()
