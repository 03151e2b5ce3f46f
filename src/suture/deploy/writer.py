"""A process that makes files of predictions: `suture.deploy.writing` starts it and talks to it.

It takes what it is told at once, as there is never more than the shared memory holds, and answers batch by batch.
"""

import socket
import sys
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial

from suture.deploy.clipfiles import COMPARING, ClipFiles, Done, Finished, Plan, Seen, agreement, with_the_one_before
from suture.deploy.flow import Small
from suture.deploy.overlap import TOGETHER, several
from suture.deploy.shared import Line, Memory
from suture.deploy.writing import Answer
from suture.errors import UserError


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


class _Clip:
    """The steps of a clip, each with threads of its own."""

    def __init__(self, files: ClipFiles, line: Line, threads: int, pools: ExitStack) -> None:
        self._files, self._line = files, line
        self._finishing, self._comparing, self._answering = map(ThreadPoolExecutor, (threads, COMPARING, 1))
        for pool in (self._finishing, self._comparing, self._answering):
            pools.callback(partial(pool.shutdown, cancel_futures=True))

    def begin(self, batch: list[Seen]) -> None:
        finishing = [self._finishing.submit(self._finish, part) for part in several(batch, TOGETHER)]
        self._answering.submit(self._answer, finishing)

    def end(self) -> None:
        """Wait until all is answered."""
        self._answering.submit(int).result()

    def _finish(self, part: list[Seen]) -> list[Finished]:
        return [self._files.finish(seen) for seen in part]

    def _answer(self, finishing: list[Future[list[Finished]]]) -> None:
        """All that needs the order, and the answer."""
        try:
            frames: list[Finished] = []
            comparing = []
            for part in finishing:
                pairs = list(with_the_one_before(part.result(), frames[-1].small if frames else None))
                comparing.append(self._comparing.submit(_agreements, pairs))
                for _, one in pairs:
                    self._files.add(one)
                    frames.append(one)
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
