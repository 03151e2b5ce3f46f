"""A whole small comparison: killed, with a run that fails, gone on with, and tabulated."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from suture.compare.collect import collect
from suture.compare.compare import compare, listing, write_tables
from suture.compare.plan import read_plan
from suture.compare.results import read_results
from suture.data.scenario import SyntheticSettings
from suture.data.sources.synthetic import write_synthetic
from suture.runs.folder import Run

FILE = """
format: 1
preset: demo
datasets:
  made: {root: data, size: 32}
labelling: {every: 4}
methods: [supervised, pgvcl]
seeds: [0, 1]
set:
  methods.supervised.train: {steps: 4, batch: 2}
  methods.pgvcl.pretrain: {steps: 2, batch: 2}
  methods.pgvcl.contrast: {steps: 2, batch: 2}
  methods.pgvcl.finetune: {steps: 2, batch: 2}
"""
COMMAND = "import sys; from pathlib import Path; from suture.compare.compare import compare; "
COMMAND += "compare(Path(sys.argv[1]), Path(sys.argv[2]), devices='cpu', jobs=2)"


def finished(out: Path) -> list[Path]:
    return sorted(out.glob("runs/*/metrics.json"))


def kill_after_the_first_run(file: Path, out: Path) -> None:
    """Start the comparison in a process of its own, and kill it when one run is finished."""
    process = subprocess.Popen([sys.executable, "-c", COMMAND, str(file), str(out)], stderr=subprocess.DEVNULL)
    try:
        while not finished(out):
            assert process.poll() is None, "it ended before a run was finished"
            time.sleep(0.05)
        children = psutil.Process(process.pid).children()
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    if sys.platform == "linux":
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive, "its runs hold their devices and locks"


@pytest.mark.timeout(900)
def test_a_comparison_survives_a_kill_and_a_failing_run(tmp_path: Path) -> None:
    settings = SyntheticSettings(cases=4, frames=8, shots=2, width=48, height=48)
    write_synthetic(tmp_path / "data", settings, container="png", progress=False)
    file, out = tmp_path / "small.yaml", tmp_path / "out"
    file.write_text(FILE)
    console = Console(record=True, file=(tmp_path / "said.txt").open("w"), width=200)

    kill_after_the_first_run(file, out)
    done = {path: path.stat().st_mtime_ns for path in finished(out)}
    assert done

    busy = "made__every-4__pgvcl__seed-1"
    with Run(out / "runs" / busy).locked():
        outcome = compare(file, out, devices="cpu", jobs=2, console=console)
    assert list(outcome.failed) == [busy]
    assert "is in use by process" in outcome.failed[busy]
    assert len(outcome.finished) == 3
    printed = console.export_text(clear=False)
    assert f"{busy} failed:" in printed
    assert printed.index(f"failed: {busy}: ") < printed.index("scores (%)"), "above the tables"
    written = (out / "tables.md").read_text()
    assert "Not finished: 1 of 4 runs" in written
    assert re.search(rf"Failed: {busy}: .*is in use by process", written)

    outcome = compare(file, out, devices="cpu", jobs=2, minutes=0, console=console)
    assert outcome.left == [busy]  # no time, so nothing is started
    assert "Failed: " in (out / "tables.md").read_text(), "as it was when it was last started"
    outcome = compare(file, out, devices="cpu", console=console)
    assert (len(outcome.finished), outcome.failed, outcome.left) == (4, {}, [])
    assert {path: path.stat().st_mtime_ns for path in done} == done, "what was finished is left alone"

    assert "ailed" not in (out / "tables.md").read_text()
    (board,) = read_results(out).boards
    supervised, pgvcl = board.rows
    assert (supervised.title, len(supervised.runs), supervised.labelled) == ("supervised", 2, "25.0%")
    assert (pgvcl.title, len(pgvcl.runs), pgvcl.mark) == ("pgvcl", 2, "")  # 2 + 2 supervised steps are 4
    assert supervised.runs[0].facts["supervised steps"] == "4"
    assert listing(read_plan(file), out).row_count == 4

    collect(out, tmp_path / "kept")
    written = write_tables(tmp_path / "kept")
    assert all(path.read_bytes() == (out / path.name).read_bytes() for path in written)
