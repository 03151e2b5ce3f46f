"""Processes that make files of predictions, as the one that predicts sees them.

Python lets one thread of a process run at a time. Beside a GPU several hundred frames a second are decoded, copied,
compressed, compared and encoded, each in many short steps: several processes, each with a lock of its own, wait less.
Frames and masks lie in memory that all share and the GPU reaches; over the lines go a few words for each batch.
"""

import math
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import cycle, repeat
from queue import Empty, Queue
from socket import socketpair
from threading import Event, Lock
from typing import Any, NamedTuple, Protocol

import numpy as np

from suture.core.errors import UserError
from suture.data.yuv import YuvToRgb
from suture.prediction.clip_files import FINISHING, Done, Finished, Plan, Seen, agreement
from suture.prediction.fast.shared_memory import Buffer, Line, Memory, Span
from suture.prediction.overlap import PATIENCE, cores
from suture.prediction.stability import Small

PLACES = 16
"""Batches between decoder and files: some being copied, some on the GPU, most being written. The slower the cores, the
longer that takes, and the more are needed for the GPU not to wait."""
FEWEST = 8
"""That many there may always be. Less than four could wait for each other: so many are prepared at once."""
ENOUGH = 2 * 2**30
"""Bytes, which the system cannot move: while they take more, there are no more than the fewest."""
_MOST = 3
"""Processes that make files of frames in any order: with more, the lock of the one that predicts is the shortest."""
_LAST_WORDS = 30
"""Seconds that a process has to remove what it has begun, once nobody wants it."""


def can_start() -> bool:
    """Whether this process can start another one of its kind that shares memory with it: Python on Linux can."""
    return hasattr(os, "memfd_create") and bool(sys.executable) and not getattr(sys, "frozen", False)


class Pinning(Protocol):
    """A GPU: it copies fast, and in the background, only what the system does not move."""

    def pin(self, memory: np.ndarray) -> None: ...

    def unpin(self, memory: np.ndarray) -> None: ...


class Place:
    """Shared memory for one batch: its frames (B H W 3, or their planes), masks (B H W), and planes of its overlays."""

    def __init__(self, memory: Memory, gpu: Pinning) -> None:
        self.pixels, self.masks, self.planes = self._all = [Buffer(memory, gpu.pin, gpu.unpin) for _ in range(3)]

    @property
    def spans(self) -> list[Span | None]:
        """Where the three are; None for those that this batch does not have."""
        return [buffer.span for buffer in self._all]

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self._all)

    def clear(self) -> None:
        """Forget the batch."""
        for buffer in self._all:
            buffer.span = None

    def close(self) -> None:
        for buffer in self._all:
            buffer.close()


class Batch(NamedTuple):
    """What a process is told of a batch."""

    frames: Sequence[tuple[int, str, float]]
    """Number, name and time of each."""
    place: Sequence[Span | None]
    """Where frames, masks and planes are; nowhere if the frames do not decode."""
    colours: YuvToRgb | None = None
    """Of its frames, where they are not RGB."""

    def seen(self, memory: Memory) -> list[Seen]:
        """Its frames."""
        arrays: Any = [memory[span] if span else repeat(None) for span in self.place]
        together = zip(self.frames, *arrays, repeat(self.colours), strict=False)
        return [Seen(*told, *lying) for told, *lying in together]


class Answer(NamedTuple):
    """A batch that is written; and its first and last frame, to be compared with those of other batches."""

    done: list[Done]
    first: Finished
    last: Finished


class Process:
    """One of the processes: started here, ended by hanging up, or by itself if this process is gone."""

    def __init__(self, memory: Memory, threads: int) -> None:
        here, there = socketpair()
        self._line = Line(here)
        words = [
            sys.executable,
            "-P",
            "-m",
            "suture.prediction.fast.writer_process",
            there.fileno(),
            memory.file,
            threads,
        ]
        with there:
            # Not by multiprocessing, which would run the script that called us anew. It finds what this process finds.
            paths = [os.path.abspath(entry) for entry in sys.path if isinstance(entry, str)]
            self._process = subprocess.Popen(
                [str(word) for word in words],
                pass_fds=(there.fileno(), memory.file),
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for this process, which then hangs up
            )

    def say(self, message: Plan | Batch | None) -> None:
        try:
            self._line.say(message)
        except OSError:
            raise self._ended() from None

    def hear(self) -> Any:
        try:
            answer = self._line.hear()
        except EOFError:
            raise self._ended() from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _ended(self) -> UserError:
        code = self._process.wait(_LAST_WORDS)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return UserError(f"A process that writes the results {how}, maybe for want of memory: start again to go on.")

    def hang_up(self) -> None:
        self._line.hang_up()

    def wait(self) -> None:
        try:
            self._process.wait(_LAST_WORDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Writer:
    """All processes that write, started with the first clip, and anew where one failed; and their memory.

    One makes videos, for which it is told of every batch; the others take turns. They stay for further clips, and end
    with this object. It is entered for each clip: one thread has it at a time, and where the clip fails, the memory is
    given back when the clip's threads are gone.
    """

    def __init__(self, gpu: Pinning) -> None:
        self._gpu = gpu
        self._lock = Lock()
        self._processes: list[Process] = []
        self._left = Event()
        self.close: Callable[[], None] = lambda: None
        """End the processes and give back the memory, if no thread is at work on it any more."""

    def __enter__(self) -> "Writer":
        self._lock.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        try:
            if kind is not None:
                self.close()
        finally:
            self._lock.release()

    @contextmanager
    def clip(self, plan: Plan) -> Iterator[None]:
        """Within, batches of this clip are sent; in the end its files are whole, or an error says why not."""
        if not self._processes:
            self._start()
        films, *others = self._processes
        shares = [(films, plan.in_order), *((process, plan.in_any_order) for process in others)]
        at_work = [(process, share) for process, share in shares if share]
        self._told_all = [films] if plan.in_order else []
        self._sending, self._receiving = cycle(others), cycle(others)
        self._before: Small | None = None
        try:
            for process, share in at_work:
                process.say(replace(share, folder=share.folder.absolute()))  # it may have started in another folder
            yield
            for process, _ in at_work:
                process.say(None)
            for process, _ in at_work:
                process.hear()
        except BaseException:
            self._left.set()
            _end(self._processes)
            raise

    def take(self) -> Place:
        """Memory for a batch: some that is free, or new; or waits for some. One thread at a time may ask."""
        while not self._left.is_set():
            with self._counting:
                more = len(self._places) < self._most
            with suppress(Empty):
                return self._free.get(timeout=0 if more else PATIENCE)
            if more:
                place = Place(self._memory, self._gpu)
                with self._counting:
                    self._places.append(place)
                return place
        raise EOFError

    def give_back(self, place: Place) -> None:
        """Memory that a later batch may have."""
        place.clear()
        with self._counting:
            if len(self._places) <= self._most:
                self._free.put(place)
                return
            self._places.remove(place)  # there were more for a clip of smaller frames
        place.close()

    @property
    def _most(self) -> int:
        """Places that there may be."""
        return FEWEST if sum(place.nbytes for place in self._places) > ENOUGH else PLACES

    def send(self, batch: Batch) -> None:
        """A batch to be written; another thread may receive meanwhile."""
        for process in (*self._told_all, next(self._sending)):
            process.say(batch)

    def receive(self) -> list[Done]:
        """The frames of the oldest batch that was sent, as soon as all of them are written."""
        for process in self._told_all:
            process.hear()
        answer: Answer = next(self._receiving).hear()
        compared = agreement(self._before, answer.first)
        self._before = answer.last.small or self._before
        return [compared, *answer.done[1:]]

    def _start(self) -> None:
        self.close()
        self._left.clear()
        self._memory = memory = Memory()
        self._places: list[Place] = []
        self._counting = Lock()
        self._free: Queue[Place] = Queue()
        others = max(1, min(_MOST, cores() // 4))
        threads = min(FINISHING, cores())
        self._processes = [Process(memory, share) for share in (threads, *[math.ceil(threads / others)] * others)]
        self.close = weakref.finalize(self, _close, self._processes, self._places, memory)


def _close(processes: list[Process], places: list[Place], memory: Memory) -> None:
    _end(processes)
    for place in places:
        place.close()
    memory.close()


def _end(processes: list[Process]) -> None:
    """End them; they remove what they have begun."""
    ending = processes.copy()
    processes.clear()  # first: whoever interrupts this finds none that are half gone
    for process in ending:
        process.hang_up()
    for process in ending:
        process.wait()
