"""Writer for prediction on a GPU: processes that share memory with this one.

Python runs one thread of a process at a time. With a GPU, several hundred frames per second are decoded, copied,
compressed, compared and encoded in many short steps. Several processes wait less for locks than threads. Frames and
masks are in memory that all processes and the GPU share. Messages hold only a few numbers per batch.
"""

import math
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import cycle, repeat
from queue import Empty, Queue
from socket import socketpair
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from suture.core.errors import UserError
from suture.data.yuv import YuvToRgb
from suture.prediction.clip_files import FINISH_THREADS, FinishedFrame, OutputPlan, PredictedFrame, Written, compare
from suture.prediction.fast.shared_memory import MessageSocket, SharedBuffer, SharedMemory, Span
from suture.prediction.flow_agreement import Thumbnail
from suture.prediction.prefetch import cores, prefetch
from suture.prediction.writer import PredictedBatch, WrittenFrame

if TYPE_CHECKING:  # imports torch, which the processes do without
    from suture.prediction.fast.gpu import Gpu

MAX_BATCHES = 16
"""Batches between decoder and files: some are copied, some on the GPU, most are being written."""
MIN_BATCHES = 8
"""Batches that always get memory. With fewer than four, threads could wait for each other."""
MAX_PINNED_BYTES = 2 * 2**30
"""Pinned memory above which there are no more than `MIN_BATCHES`."""
MAX_IMAGE_PROCESSES = 3
"""Processes for single frames: with more, the lock of the predicting process is the limit."""
POLL_S = 0.1
"""Interval (s) at which a thread that waits for memory checks whether the clip goes on."""
EXIT_GRACE_S = 30
"""Time (s) for a process to remove unfinished files after cancellation."""


def can_start() -> bool:
    """True if this process can start another one that shares memory with it: Python on Linux can."""
    return hasattr(os, "memfd_create") and bool(sys.executable) and not getattr(sys, "frozen", False)


class SharedBatch:
    """Shared memory for a batch: frames (B, H, W, 3) or their planes, masks (B, H, W), and planes of the overlays."""

    def __init__(self, memory: SharedMemory, gpu: "Gpu") -> None:
        self.pixels, self.masks, self.planes = self._buffers = [
            SharedBuffer(memory, gpu.pin, gpu.unpin) for _ in range(3)
        ]

    @property
    def spans(self) -> list[Span | None]:
        """Locations of the three arrays; None for those that this batch lacks."""
        return [buffer.span for buffer in self._buffers]

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self._buffers)

    def clear(self) -> None:
        """Mark the memory as empty."""
        for buffer in self._buffers:
            buffer.span = None

    def close(self) -> None:
        """Give the memory back."""
        for buffer in self._buffers:
            buffer.close()


class BatchMessage(NamedTuple):
    """A batch, as it is sent to a process."""

    frames: Sequence[tuple[int, str, float]]
    """Index, name and time of each frame."""
    spans: Sequence[Span | None]
    """Locations of frames, masks and planes."""
    colours: YuvToRgb | None = None

    def load(self, memory: SharedMemory) -> list[PredictedFrame]:
        """Return its frames."""
        arrays: Any = [memory[span] if span else repeat(None) for span in self.spans]
        together = zip(self.frames, *arrays, repeat(self.colours), strict=False)
        return [PredictedFrame(*frame, *content) for frame, *content in together]


class BatchAnswer(NamedTuple):
    """A batch that is written, with its first and last frame, which are compared with those of other batches."""

    written: list[Written]
    first: FinishedFrame
    last: FinishedFrame


class WriterProcess:
    """One of the processes. It ends when its connection is closed, or this process is gone."""

    def __init__(self, memory: SharedMemory, threads: int) -> None:
        here, there = socketpair()
        self._socket = MessageSocket(here)
        module = "suture.prediction.fast.writer_process"
        command = [sys.executable, "-P", "-m", module, there.fileno(), memory.file, threads]
        with there:
            # Not by multiprocessing, which would run the user's script again. It imports from the same paths.
            paths = [os.path.abspath(entry) for entry in sys.path if isinstance(entry, str)]
            self._process = subprocess.Popen(
                [str(part) for part in command],
                pass_fds=(there.fileno(), memory.file),
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for this process, which then closes the connection
            )

    def send(self, message: OutputPlan | BatchMessage | None) -> None:
        try:
            self._socket.send(message)
        except OSError:
            raise self._ended() from None

    def receive(self) -> Any:
        try:
            answer = self._socket.receive()
        except EOFError:
            raise self._ended() from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _ended(self) -> UserError:
        code = self._process.wait(EXIT_GRACE_S)
        return UserError(f"A process that writes results ended with code {code}, maybe out of memory: start again.")

    def close(self) -> None:
        """Close the connection, which ends the process."""
        self._socket.close()

    def wait(self) -> None:
        """Wait for its end, and kill it after a while."""
        try:
            self._process.wait(EXIT_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class ProcessWriter:
    """Writes files by other processes, which start with the first clip and stay for further ones.

    One process makes videos and gets every batch; the others take turns. One thread uses the writer at a time.

    Args:
        gpu: The device that fills the shared memory.
    """

    def __init__(self, gpu: "Gpu") -> None:
        self._gpu = gpu
        self._lock = Lock()
        self._processes: list[WriterProcess] = []
        self._left = Event()
        self.close: Callable[[], None] = lambda: None
        """End the processes and give back the memory."""

    @contextmanager
    def session(self) -> Iterator[None]:
        with self._lock:
            try:
                if not self._processes:
                    self._start()
                yield
            except BaseException:
                self.close()
                raise

    def allocate(self) -> SharedBatch:
        """Return memory for a batch: free or new, or wait for some. One thread at a time may call it."""
        while not self._left.is_set():
            with self._counting:
                more = len(self._batches) < self._limit
            with suppress(Empty):
                return self._free.get(timeout=0 if more else POLL_S)
            if more:
                batch = SharedBatch(self._memory, self._gpu)
                with self._counting:
                    self._batches.append(batch)
                return batch
        raise EOFError

    def release(self, batch: SharedBatch) -> None:
        """Give memory to a later batch."""
        batch.clear()
        with self._counting:
            if len(self._batches) <= self._limit:
                self._free.put(batch)
                return
            self._batches.remove(batch)  # a clip of smaller frames had more
        batch.close()

    @property
    def _limit(self) -> int:
        large = sum(batch.nbytes for batch in self._batches) > MAX_PINNED_BYTES
        return MIN_BATCHES if large else MAX_BATCHES

    def write(self, plan: OutputPlan, batches: Iterator[PredictedBatch]) -> Generator[list[WrittenFrame], None, None]:
        video_process, *others = self._processes
        shares = [(video_process, plan.videos), *((process, plan.images) for process in others)]
        working = [(process, share) for process, share in shares if share]
        every = [video_process] if plan.videos else []
        sending, receiving = cycle(others), cycle(others)
        previous: Thumbnail | None = None

        def sent() -> Iterator[PredictedBatch]:
            for batch in batches:
                if batch.pending is not None:
                    batch.pending.wait()
                for process in (*every, next(sending)):
                    process.send(_message(batch))
                yield batch

        # The processes end first: threads that wait for memory notice it.
        with closing(prefetch(sent(), depth=MAX_BATCHES)) as pending, self._ended_on_error():
            for process, share in working:
                process.send(replace(share, folder=share.folder.absolute()))
            for batch in pending:
                for process in every:
                    process.receive()
                answer: BatchAnswer = next(receiving).receive()
                agreements = [compare(previous, answer.first), *answer.written[1:]]
                previous = answer.last.thumbnail or previous
                if batch.memory is not None:
                    self.release(batch.memory)
                measured = batch.pending.measured if batch.pending is not None else repeat((None, None))
                together = zip(batch.frames, measured, agreements, strict=False)
                yield [WrittenFrame(frame, *measures, agreement) for frame, measures, (_, agreement) in together]
            for process, _ in working:
                process.send(None)
            for process, _ in working:
                process.receive()

    @contextmanager
    def _ended_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._left.set()
            _end(self._processes)
            raise

    def _start(self) -> None:
        self.close()
        self._left.clear()
        self._memory = memory = SharedMemory()
        self._batches: list[SharedBatch] = []
        self._counting = Lock()
        self._free: Queue[SharedBatch] = Queue()
        others = max(1, min(MAX_IMAGE_PROCESSES, cores() // 4))
        threads = min(FINISH_THREADS, cores())
        self._processes = [WriterProcess(memory, n) for n in (threads, *[math.ceil(threads / others)] * others)]
        self.close = weakref.finalize(self, _close, self._processes, self._batches, memory)


def _message(batch: PredictedBatch) -> BatchMessage:
    frames = [(frame.index, frame.name, frame.time or 0.0) for frame in batch.frames]
    return BatchMessage(frames, batch.memory.spans if batch.memory else (None,) * 3, batch.frames[0].colours)


def _close(processes: list[WriterProcess], batches: list[SharedBatch], memory: SharedMemory) -> None:
    _end(processes)
    for batch in batches:
        batch.close()
    memory.close()


def _end(processes: list[WriterProcess]) -> None:
    """End processes; they remove unfinished files."""
    ending = processes.copy()
    processes.clear()  # first, so that an interrupt leaves none half ended in the list
    for process in ending:
        process.close()
    for process in ending:
        process.wait()
