"""Workers end with the process they work for."""

import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import psutil
import pytest

from suture.core.workers import cores, start_in_pool

PARENT = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from suture.core.workers import start_worker

if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, get_context("fork"), start_worker, (os.getpid(),))
    print(pool.submit(os.getpid).result(), flush=True)
    time.sleep(60)
"""


def test_a_worker_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        psutil.wait_procs([worker], timeout=20)
        deadline = time.monotonic() + 20
        while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE


OUTLIVED = """
import os, time
from multiprocessing import get_context
from pathlib import Path
from suture.core import workers

def work(parent):
    workers.TERM_GRACE_S = 0.5
    workers.start_worker(parent)
    print("ready", flush=True)
    while True:
        time.sleep(0.1)

if __name__ == "__main__":
    worker = get_context("fork").Process(target=work, args=(os.getpid(),), daemon=True)
    worker.start()
    input()
"""


def test_a_parent_that_ends_does_not_wait_for_ever() -> None:
    """At its end it asks daemons by SIGTERM to end, and waits for them."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", OUTLIVED], **pipes, text=True) as parent:  # type: ignore[call-overload]
        assert parent.stdout.readline() == "ready\n"
        parent.communicate("\n", timeout=120)
        assert parent.returncode == 0


def test_a_pool_of_which_one_process_died_ends_the_others() -> None:
    """It does so by SIGTERM, and waits for them."""
    began = time.monotonic()
    with ProcessPoolExecutor(2, get_context("fork"), start_in_pool, (os.getpid(),)) as pool:
        busy, dead = pool.submit(time.sleep, 600), pool.submit(os._exit, 1)
        for future in (busy, dead):
            with pytest.raises(BrokenProcessPool):
                future.result()
    assert time.monotonic() - began < 300


def test_processes_share_the_cores_and_each_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    assert [cores(), cores(2), cores(4), cores(8)] == [6, 3, 1, 1]


DECODER = """
import gc, sys
import av
import numpy as np
from suture.core.workers import pool_for

path = sys.argv[1]
with av.open(path, "w") as file:
    stream = file.add_stream("libx264", rate=25)
    stream.width = stream.height = 64
    for level in range(30):
        frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), level, np.uint8), format="rgb24")
        for packet in stream.encode(frame):
            file.mux(packet)
    for packet in stream.encode():
        file.mux(packet)
gc.disable()
for _ in range(20):
    file = av.open(path)
    file.streams.video[0].codec_context.thread_count = 4
    file.streams.video[0].codec_context.thread_type = "FRAME"
    decoded = file.decode(video=0)
    left = [next(decoded) for _ in range(3)], file, decoded
    left[0].append(left)
del file, decoded, left
with pool_for("collecting", 1) as pool:
    pool.submit(gc.collect).result(timeout=20)
print("done", flush=True)
"""


def test_a_worker_does_not_free_the_decoders_of_its_parent(tmp_path: Path) -> None:
    """Their threads are not in a forked process: it would wait for them for ever."""
    command = [sys.executable, "-c", DECODER, str(tmp_path / "a.mp4")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            said, _ = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
            raise
    assert said == "done\n"
