"""The program of a writer process, which `suture.prediction.fast.process_writer` starts.

It accepts messages at once, as there are never more than the shared memory holds, and answers batch by batch.
"""

import socket
import sys
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import starmap
from typing import NamedTuple

from suture.core.errors import UserError
from suture.prediction.clip_files import (
    COMPARE_THREADS,
    ClipFiles,
    FinishedFrame,
    OutputPlan,
    PredictedFrame,
    Written,
    compare,
    with_previous,
)
from suture.prediction.fast.process_writer import BatchAnswer
from suture.prediction.fast.shared_memory import MessageSocket, SharedMemory
from suture.prediction.flow_agreement import Thumbnail
from suture.prediction.prefetch import FRAMES_TOGETHER
from suture.prediction.video_writer import Accepted


def main() -> None:
    """Write clip after clip until the connection is closed."""
    end, file, threads = map(int, sys.argv[1:])
    connection, memory = MessageSocket(socket.socket(fileno=end)), SharedMemory(file)
    with suppress(EOFError, BrokenPipeError):
        while True:
            plan = connection.receive()
            try:
                _write_clip(plan, connection, memory, threads)
            except EOFError:
                raise
            except Exception as error:
                connection.send(sendable(error))
            else:
                connection.send(None)


def _write_clip(plan: OutputPlan, connection: MessageSocket, memory: SharedMemory, threads: int) -> None:
    with ClipFiles(plan) as files, ExitStack() as pools:
        steps = ClipSteps(files, connection, threads, pools)
        while (batch := connection.receive()) is not None:
            steps.begin(batch.load(memory))
        steps.end()


class _AddedBatch(NamedTuple):
    """A batch whose frames were added to the files."""

    frames: list[FinishedFrame]
    comparing: list[Future[list[Written]]]
    accepted: list[Accepted]


class ClipSteps:
    """The steps of a clip, each with threads of its own."""

    def __init__(self, files: ClipFiles, connection: MessageSocket, threads: int, pools: ExitStack) -> None:
        self._files, self._connection = files, connection
        self._finishing, self._comparing = ThreadPoolExecutor(threads), ThreadPoolExecutor(COMPARE_THREADS)
        self._adding, self._answering = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        for pool in (self._finishing, self._comparing, self._adding, self._answering):
            pools.callback(partial(pool.shutdown, cancel_futures=True))

    def begin(self, batch: list[PredictedFrame]) -> None:
        """Start the steps of a batch."""
        parts = [batch[start : start + FRAMES_TOGETHER] for start in range(0, len(batch), FRAMES_TOGETHER)]
        finishing = [self._finishing.submit(self._finish, part) for part in parts]
        self._answering.submit(self._answer, self._adding.submit(self._add, finishing))

    def end(self) -> None:
        """Wait until all batches are answered."""
        self._answering.submit(int).result()

    def _finish(self, part: list[PredictedFrame]) -> list[FinishedFrame]:
        return [self._files.finish(frame) for frame in part]

    def _add(self, finishing: list[Future[list[FinishedFrame]]]) -> _AddedBatch:
        """Do what needs the order; encoders take frames of later batches meanwhile."""
        added = _AddedBatch([], [], [])
        for part in finishing:
            previous = added.frames[-1].thumbnail if added.frames else None
            pairs = list(with_previous(part.result(), previous))
            added.comparing.append(self._comparing.submit(_compare_all, pairs))
            for _, frame in pairs:
                added.accepted.append(self._files.add(frame))
                added.frames.append(frame)
        return added

    def _answer(self, adding: Future[_AddedBatch]) -> None:
        """Answer a batch once its memory is needed no more."""
        try:
            frames, comparing, accepted = adding.result()
            for future in accepted:
                if future is not None:
                    future.result()
            first, last = (replace(frame, mask=None, overlay=None) for frame in (frames[0], frames[-1]))
            written = [one for part in comparing for one in part.result()]
            self._connection.send(BatchAnswer(written, first, last))
        except Exception as error:
            self._connection.send(sendable(error))


def _compare_all(pairs: list[tuple[Thumbnail | None, FinishedFrame]]) -> list[Written]:
    return list(starmap(compare, pairs))


def sendable(error: Exception) -> Exception:
    """Return an equivalent error that can be pickled."""
    if isinstance(error, UserError):
        return UserError(str(error))
    if isinstance(error, OSError) and error.errno is not None:
        return OSError(error.errno, error.strerror)
    return RuntimeError("".join(traceback.format_exception(error)))


if __name__ == "__main__":
    main()
