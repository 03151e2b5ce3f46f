"""Workers end with the process they work for."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from suture.data.workers import cores

PARENT = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from suture.data.workers import start_worker

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


def test_processes_share_the_cores_and_each_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    assert [cores(), cores(2), cores(4), cores(8)] == [6, 3, 1, 1]
