"""Writer processes: real ones, killed for real."""

import errno
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, Queue
from socket import socketpair
from threading import Thread
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import psutil
import pytest
import torch
from predict_files import as_on_a_gpu, picture, wait, write_images, write_video
from rich.console import Console

from suture.core.errors import UserError
from suture.data.overlay import Overlay
from suture.prediction import clip_job
from suture.prediction.clip_files import ClipFiles, FinishedFrame, OutputPlan, PredictedFrame
from suture.prediction.clip_job import ClipJob
from suture.prediction.fast import process_writer
from suture.prediction.fast.gpu import Gpu
from suture.prediction.fast.process_writer import ProcessWriter, SharedBatch
from suture.prediction.fast.shared_memory import MessageSocket, SharedBuffer, SharedMemory
from suture.prediction.fast.writer_process import ClipSteps
from suture.prediction.find_clips import find_clips
from suture.prediction.predict import predict
from suture.prediction.prediction_settings import PredictionSettings
from suture.prediction.predictor import Predictor
from suture.prediction.video_writer import GROUP_FRAMES


@pytest.fixture(autouse=True)
def _short_clips_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clip_job, "MIN_FRAMES_FOR_PROCESSES", 0)


@pytest.fixture
def fresh(model: Path) -> Predictor:
    """Its processes are started for this test."""
    return as_on_a_gpu(model)


def run(
    predictor: Predictor, given: Path, out: Path, progress: Callable[[int], None] = lambda _: None, **settings: Any
) -> None:
    (clip,) = find_clips([given])
    ClipJob(predictor, clip, out / clip.name, PredictionSettings(**settings), 4).run(progress)


def contents(folder: Path) -> dict[str, bytes]:
    """All files but overlays in a video, which OpenCV and a GPU draw alike but for the last bit."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".mp4"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def pids(predictor: Predictor) -> list[int]:
    assert predictor.process_writer is not None
    return [process._process.pid for process in predictor.process_writer._processes]


def many_images(folder: Path) -> Path:
    """Of several sizes, and some that are none."""
    write_images(folder, 12)
    for index in (3, 4, 9):
        cv2.imwrite(str(folder / f"frame{index}.png"), picture(index, 60 + index, 50)[..., ::-1])
    for index in (0, 6):
        (folder / f"frame{index}.png").write_bytes(b"no picture")
    return folder


def in_writers(monkeypatch: pytest.MonkeyPatch, folder: Path, words: str) -> None:
    """Let the processes that write do this first: Python looks for such a module where it finds others."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(words)
    monkeypatch.syspath_prepend(str(folder))


SIXTEEN = "import os; os.sched_getaffinity = lambda _: range(16)"


@pytest.mark.parametrize("settings", [{}, {"masks": "video"}, {"masks": "none"}, {"overlay": False}, {"smooth": 0.5}])
def test_other_processes_write_the_same(
    model: Path, fresh: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    in_writers(monkeypatch, tmp_path / "words", SIXTEEN)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(16))  # so that some take turns, encoders too
    alone: Any = as_on_a_gpu(model)
    alone.process_writer = None
    at_work = []
    for given in (write_video(tmp_path / "case.mp4", 6 * GROUP_FRAMES), many_images(tmp_path / "images")):
        run(alone, given, tmp_path / "here", **settings)
        run(fresh, given, tmp_path / "there", **settings)
        at_work.append(pids(fresh))
    assert at_work[0] == at_work[1]
    assert len(at_work[0]) == 4
    assert all(psutil.pid_exists(pid) for pid in at_work[0])
    assert fresh.process_writer is not None
    fresh.process_writer.close()
    assert not any(psutil.pid_exists(pid) for pid in at_work[0])
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    videos = [[path.read_bytes() for path in (tmp_path / name).rglob("*.mp4")] for name in ("here", "there")]
    assert videos[0] == videos[1]
    assert len(videos[0]) == settings.get("overlay", True)


def test_they_end_with_the_predictor(model: Path, tmp_path: Path) -> None:
    predictor = as_on_a_gpu(model)
    run(predictor, write_video(tmp_path / "case.mp4", 3), tmp_path / "out")
    at_work = pids(predictor)
    assert len(at_work) >= 2
    del predictor
    assert not any(psutil.pid_exists(pid) for pid in at_work)


def test_they_do_not_import_torch() -> None:
    words = "import sys, suture.prediction.fast.writer_process; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", words], check=True, timeout=60)


@pytest.mark.parametrize("which", [0, 1])
def test_a_killed_writer_is_one_sentence_and_gone_on_after(gpu: Predictor, tmp_path: Path, which: int) -> None:
    given = write_video(tmp_path / "case.mp4", 80)
    done = []

    def progress(frames: int) -> None:
        done.append(frames)
        if sum(done) == 9:
            os.kill(pids(gpu)[which], signal.SIGKILL)

    with pytest.raises(UserError, match=r"A process that writes results ended with code -9, .*: start again"):
        run(gpu, given, tmp_path / "out", progress)
    assert not pids(gpu)
    assert 9 <= sum(done) < 80
    known = len((tmp_path / "out/case/.journal.jsonl").read_text().splitlines()) - 1
    assert known == sum(done)
    again: list[int] = []
    run(gpu, given, tmp_path / "out", again.append)
    assert sum(again) == 80
    run(gpu, given, tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_files_go_where_this_process_is(gpu: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        run(gpu, write_video(tmp_path / name / "case.mp4", 3), Path("out"))
        assert len(list((tmp_path / name / "out/case/masks").iterdir())) == 3
        assert (tmp_path / name / "out/case/overlay.mp4").exists()


def test_two_threads_take_turns(gpu: Predictor, tmp_path: Path) -> None:
    given = [write_video(tmp_path / f"{name}.mp4", 30) for name in ("one", "two")]
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(run, gpu, each, tmp_path / "out") for each in given]:
            done.result(60)
    assert [len(list((tmp_path / f"out/{name}/masks").iterdir())) for name in ("one", "two")] == [30, 30]


def test_who_is_interrupted_waits_for_no_answer() -> None:
    """A process may be in the middle of an answer that nobody hears: it must not be waited for."""
    here, there = socketpair()
    line = MessageSocket(here)

    def speak() -> None:
        with suppress(OSError):
            MessageSocket(there).send("word" * 10_000_000)

    speaking = Thread(target=speak, daemon=True)
    speaking.start()
    line.close()
    speaking.join(10)
    assert not speaking.is_alive()


@pytest.mark.parametrize("words", ["", SIXTEEN])
def test_a_full_disk_there_is_told_here(
    fresh: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))"
    in_writers(monkeypatch, tmp_path / "words", f"{words}\n{full}")
    given = write_video(tmp_path / "case.mp4", 80, (240, 180))
    with pytest.raises(UserError, match=r"case cannot be written \(File too large\): .*, and start again to go on"):
        predict(fresh, [given], tmp_path / "out", console=Console(file=io.StringIO()))
    assert {path.name for path in (tmp_path / "out/case").iterdir()} == {"masks", ".journal.jsonl", ".lock"}


def test_a_batch_is_answered_when_its_memory_is_free() -> None:
    """Encoders are given the next ones meanwhile, and may be done with them earlier."""
    taken: list[Future[None]] = []
    answers: Queue[Any] = Queue()

    def add(_: FinishedFrame) -> Future[None]:
        taken.append(Future())
        return taken[-1]

    files: Any = SimpleNamespace(finish=lambda seen: FinishedFrame(seen.index, seen.time, True), add=add)
    line: Any = SimpleNamespace(send=answers.put)
    with ExitStack() as pools:
        clip = ClipSteps(files, line, 2, pools)
        for start in range(0, 12, 4):
            clip.begin([PredictedFrame(index, "", 0.0) for index in range(start, start + 4)])
        wait(lambda: len(taken) == 12)
        for future in taken[3:8]:
            future.set_result(None)
        with pytest.raises(Empty):
            answers.get(timeout=0.2)
        for future in taken[:3]:
            future.set_result(None)
        for start in (0, 4):
            assert [index for index, _ in answers.get(timeout=60).written] == list(range(start, start + 4))
        for future in taken[8:]:
            future.set_exception(OSError(errno.ENOSPC, "No space left on device"))
        assert answers.get(timeout=60).errno == errno.ENOSPC


SCRIPT = """
import sys
import time
from pathlib import Path
sys.path.insert(0, {tests!r})
from predict_files import as_on_a_gpu
from suture.prediction import clip_job
from suture.prediction.predict import predict
clip_job.MIN_FRAMES_FOR_PROCESSES = 0
predictor = as_on_a_gpu(Path({model!r}))
begin, begun = predictor.begin, []
def begin_slowly(*asked):
    begun.append(asked)
    time.sleep(0.2 * (len(begun) > 5))  # so that it is not done before it is ended
    return begin(*asked)
predictor.begin = begin_slowly
try:
    predict(predictor, [{given!r}], Path({out!r}), batch=4)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_nothing_stays_behind(model: Path, gpu: Predictor, tmp_path: Path, how: signal.Signals) -> None:
    """Of a script that has no guard for its `__main__`: its processes end with it, and it can be gone on with."""
    given = write_video(tmp_path / "case.mp4", 80)
    words = {
        "tests": str(Path(__file__).parent),
        "model": str(model),
        "given": str(given),
        "out": str(tmp_path / "out"),
    }
    (tmp_path / "script.py").write_text(SCRIPT.format(**words))
    process = subprocess.Popen([sys.executable, str(tmp_path / "script.py")], stderr=subprocess.DEVNULL)
    journal = tmp_path / "out/case/.journal.jsonl"
    wait(lambda: journal.exists() and len(journal.read_text().splitlines()) > 10)
    others = psutil.Process(process.pid).children()
    assert len(others) >= 2
    process.send_signal(how)
    assert process.wait(60) == (130 if how == signal.SIGINT else -how)
    wait(lambda: not any(other.is_running() and other.status() != psutil.STATUS_ZOMBIE for other in others))
    left = {path.name for path in (tmp_path / "out/case").rglob("*") if path.suffix != ".png"}
    assert left == {"masks", ".journal.jsonl", ".lock"}
    for out in ("out", "whole"):
        predict(gpu, [given], tmp_path / out, batch=4, console=Console(file=io.StringIO()))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_memory_is_allocated_as_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen batches of small frames; of large ones no more than eight, the others' memory is given back."""
    monkeypatch.setattr(process_writer, "MAX_PINNED_BYTES", 2**20)
    pinned: list[int] = []
    gpu: Any = SimpleNamespace(pin=lambda new: pinned.append(len(new)), unpin=lambda old: pinned.remove(len(old)))
    writer = ProcessWriter(gpu)
    writer._start()

    def allocate(count: int, size: int) -> list[SharedBatch]:
        batches = [writer.allocate() for _ in range(count)]
        for batch in batches:
            batch.masks.shaped((size,))
        return batches

    small = allocate(process_writer.MAX_BATCHES, 1000)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(writer.allocate)
        with pytest.raises(TimeoutError):
            waits.result(0.2)
        writer.release(small[3])
        assert waits.result(10) is small[3]
    for batch in small:
        writer.release(batch)
    for batch in allocate(process_writer.MAX_BATCHES, 2**20):
        writer.release(batch)
    assert len(writer._batches) == process_writer.MIN_BATCHES
    assert sum(pinned) == process_writer.MIN_BATCHES * 2**20
    writer.close()
    assert not pinned


def test_memory_grows_and_what_lies_under_it_is_pinned() -> None:
    pinned: list[int] = []
    buffer = SharedBuffer(
        memory := SharedMemory(), lambda new: pinned.append(len(new)), lambda old: pinned.remove(len(old))
    )
    there = SharedMemory(memory.file)
    for shape in ((2, 3, 5), (1,), (70, 90), (3, 3), (100, 100)):
        here = buffer.shaped(shape)
        here[:] = np.random.default_rng(0).integers(0, 255, shape)
        assert buffer.span is not None
        np.testing.assert_array_equal(there[buffer.span], here)
    assert pinned == [100 * 100]
    buffer.close()
    assert not pinned
    assert os.fstat(memory.file).st_blocks == 0
    memory.close()


def test_what_a_gpu_drew_is_not_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: Predictor) -> None:
    monkeypatch.delattr(Overlay, "__call__")
    plan = OutputPlan(tmp_path, gpu.classes, masks=False, pictures=False, mask_video=False, overlay_video=True, fps=25)
    planes = np.arange(12 * 8, dtype=np.uint8).reshape(12, 8)
    with ClipFiles(plan) as files:
        drawn = files.finish(PredictedFrame(0, "a", 0.0, picture(0, 8, 8), np.zeros((8, 8), np.uint8), planes)).overlay
    np.testing.assert_array_equal(drawn.to_ndarray(), planes)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="memory is pinned for a GPU")
def test_a_gpu_reaches_the_shared_memory(model: Path, tmp_path: Path) -> None:
    gpu = Gpu(torch.device("cuda"))
    memory = SharedMemory()
    one, other = (SharedBuffer(memory, gpu.pin, gpu.unpin) for _ in range(2))
    for size in (1000, 3_000_001):
        here, back = (torch.from_numpy(buffer.shaped((2, size))) for buffer in (one, other))
        assert here.is_pinned()
        here.random_(0, 200)
        with gpu.computing():
            (found, total), ready = gpu.download(
                [gpu.upload(here) + 1, torch.ones(3, device="cuda").sum()], [back, None]
            )
        ready.synchronize()
        assert found is back
        assert total == 3
        assert (back == here + 1).all()
    for buffer in (one, other):
        buffer.close()
    given = write_video(tmp_path / "case.mp4", 150, (200, 160))
    predictor: Any = Predictor(model, "cuda")  # one for both: each looks for algorithms of its own
    predictor.process_writer = None
    run(predictor, given, tmp_path / "here")
    del predictor.process_writer
    run(predictor, given, tmp_path / "there")
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
