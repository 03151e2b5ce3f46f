"""A small comparison with a sweep: killed, with a run that fails, continued; and parts of one."""

import json
import re
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest
from by_hand import scores
from commands import started
from rich.console import Console

from suture.cli import main
from suture.comparison.board import boards
from suture.comparison.compare import compare
from suture.comparison.plan import read_plan
from suture.comparison.queue import Queue
from suture.comparison.results import read_results
from suture.core.errors import UserError
from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic

FILE = """
format: 1
preset: demo
datasets:
  made: {root: data, size: 32, store_size: 48}
labelling: {every: 4}
methods: [supervised, pgvcl]
seeds: [0, 1]
set:
  methods.supervised.train: {steps: 4, batch: 2}
  methods.pgvcl.pretrain: {steps: 2, batch: 2}
  methods.pgvcl.contrast: {steps: 2, batch: 2}
  methods.pgvcl.finetune: {steps: 2, batch: 2}
"""


def names(*methods: str) -> list[str]:
    return [f"made__every-4__{method}__seed-{seed}" for seed in (0, 1) for method in methods]


def finished(out: Path) -> list[Path]:
    return sorted(out.glob("runs/*/metrics.json"))


def recorder(tmp_path: Path) -> Console:
    return Console(record=True, file=(tmp_path / "printed.txt").open("w"), width=400)


def kill_with_its_runs(file: Path, out: Path) -> None:
    words = ["suture", "compare", file, "-o", out, "--devices", "cpu", "--jobs", "2"]
    with started(*words, said=file.with_name("killed.txt")) as process:
        while not (children := psutil.Process(process.pid).children()):
            assert process.is_alive(), "it ended before a run was started"
            time.sleep(0.05)
    if sys.platform == "linux":
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive, "its runs hold their devices and locks"


@pytest.mark.timeout(900)
def test_a_comparison_survives_a_kill_and_trains_nothing_twice(tmp_path: Path) -> None:
    settings = SyntheticSettings(cases=4, frames=8, shots=2, width=48, height=48)
    write_synthetic(tmp_path / "data", settings, container="png", progress=False)
    file, out, kept = tmp_path / "small.yaml", tmp_path / "out", tmp_path / "kept"
    file.write_text(f"{FILE.replace('[supervised, pgvcl]', '[supervised]')}sweep: {{a: {{method.train.batch: 4}}}}\n")
    console = recorder(tmp_path)
    kill_with_its_runs(file, out)
    outcome = compare(file, out, devices="cpu", jobs=2, console=console, collect=kept)
    assert (len(outcome.finished), outcome.failed, outcome.left) == (2, {}, [])

    results = read_results(out)
    (board,) = boards(results)
    (row,) = board.rows
    assert (row.title, len(row.runs), row.labelled) == ("supervised · a", 2, "25.0%")
    assert row.runs[0].settings["method.train.batch"] == 4, "as swept"
    assert row.runs[0].facts["runs_at_a_time"] == "2"
    assert read_results(kept / "small.csv").runs == results.runs

    shutil.rmtree(out)
    outcome = compare(file, out, devices="cpu", console=console, collect=kept)
    assert not any(out.glob("runs/*")), "what is collected is not trained again"
    file.write_text(file.read_text().replace("size: 32", "size: 48"))
    with pytest.raises(UserError, match=r"small\.csv holds runs that are not in the plan, or with other settings"):
        compare(file, out, devices="cpu", console=console, collect=kept)


TRAIN = """#!{python}
import json, os, shutil, sys, time
began = time.monotonic()
config, folder = sys.argv[4], sys.argv[6]  # -m suture train CONFIG -o FOLDER
shutil.copytree({like!r}, folder)
shutil.copy(config, folder + "/config.yaml")
time.sleep(0.1)
told = [os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "SUTURE_RUNS_AT_A_TIME")]
print(json.dumps([*told, began, time.monotonic()]))
"""


@pytest.fixture
def begun(tmp_path: Path, write_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A comparison of supervised, dmt and unimatch, two seeds each; finished is seed 0 of supervised.

    What trains is a script that copies that run and prints its GPU, how many share it, and when it began and ended.
    """
    file = tmp_path / "three.yaml"
    file.write_text(FILE.replace("[supervised, pgvcl]", "[supervised, dmt, unimatch]"))
    (tmp_path / "data").mkdir()
    first = read_plan(file).runs[0]
    run = write_run(first.name, {"test": scores(0.5)}, config=first.config.model_dump(mode="json"))
    like = shutil.copytree(run, tmp_path / "like")
    script = tmp_path / "train"
    script.write_text(TRAIN.format(python=sys.executable, like=str(like)))
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return file


def replace_script(text: str) -> None:
    script = Path(sys.executable)
    script.write_text(script.read_text().splitlines()[0] + text)


def test_failed_runs_stop_no_other_and_are_named_in_the_tables(begun: Path, tmp_path: Path) -> None:
    replace_script('\nimport sys\nprint("so far so good")\nprint("error: the disk is full.")\nsys.exit(2)\n')
    outcome = compare(begun, tmp_path, devices="cpu", console=recorder(tmp_path))
    failed = [names("supervised")[1], *names("dmt", "unimatch")]
    assert sorted(outcome.failed) == sorted(failed)
    assert outcome.failed[failed[0]] == "the disk is full."
    assert json.loads((tmp_path / "failed.json").read_text()) == outcome.failed
    for page in ("results.md", "results.html"):
        text = (tmp_path / page).read_text()
        assert "Failed (the disk is full.): 5 of 6 runs (" in text


@pytest.mark.parametrize(
    ("file", "content"),
    [("config.yaml", ""), ("metrics.json", '{"te')],
)
def test_a_damaged_run_is_left_as_it_is_and_stops_no_other(
    begun: Path, tmp_path: Path, file: str, content: str
) -> None:
    (name, *_) = names("supervised")
    damaged = tmp_path / "runs" / name / file
    damaged.write_text(content)
    outcome = compare(begun, tmp_path, devices="cpu", console=recorder(tmp_path))
    assert (len(outcome.finished), list(outcome.failed), outcome.left) == (5, [name], [])
    assert str(damaged) in outcome.failed[name]
    assert f"Failed ({damaged.name} " in (tmp_path / "results.md").read_text()
    assert damaged.read_text() == content


def test_only_some_methods_are_trained_while_plan_and_tables_are_of_all(begun: Path, tmp_path: Path) -> None:
    console = recorder(tmp_path)
    outcome = compare(begun, tmp_path, devices="cpu", minutes=0, only=["dmt"], console=console)
    assert (outcome.finished, outcome.left) == ([], names("dmt"))
    assert "Not finished in time: 2 runs" in console.export_text()
    outcome = compare(begun, tmp_path, devices="cpu", only=["dmt"], console=console)
    assert (outcome.finished, outcome.failed, outcome.left) == (names("dmt"), {}, [])
    outcome = compare(begun, tmp_path, devices="cpu", minutes=0, only=["unimatch", "dmt"], console=console)
    assert (outcome.finished, outcome.left) == (names("dmt"), names("unimatch"))
    (board,) = boards(read_results(tmp_path))
    assert [row.title for row in board.rows] == ["supervised", "dmt"]
    assert f"Not finished: 3 of 6 runs ({names('unimatch')[0]}, " in (tmp_path / "results.md").read_text()


def test_each_run_is_collected_as_it_finishes(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("suture.comparison.compare.show_tables", lost)
        with pytest.raises(KeyboardInterrupt):
            compare(begun, tmp_path, "cpu", only=["dmt"], collect=tmp_path / "kept", console=recorder(tmp_path))
    collected = read_results(tmp_path / "kept" / "three.csv")
    assert [run.key.name for run in collected.runs] == [names("supervised")[0], *names("dmt")]
    assert "## three" in (tmp_path / "kept" / "three.md").read_text()
    (tmp_path / "file").write_text("")
    console = recorder(tmp_path)
    outcome = compare(begun, tmp_path, "cpu", only=["unimatch"], collect=tmp_path / "file", console=console)
    assert len(outcome.finished) == 2, "what cannot be collected stops nothing"
    assert console.export_text().count("Not collected: ") == 3


ENDING = """
import pathlib, shutil, signal, sys, time
def end(*_):
    if "seed-0" in sys.argv[6]:
        shutil.copytree({like!r}, sys.argv[6])
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
pathlib.Path(sys.argv[6]).parents[1].joinpath("listening").open("a").write("here ")
time.sleep(100)
"""


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_run_that_finishes_while_it_is_stopped_counts(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_interrupted: bool
) -> None:
    replace_script(ENDING.format(like=str(tmp_path / "like")))
    listening = tmp_path / "listening"

    def time_is_up(queue: Queue) -> None:
        if listening.exists() and listening.read_text() == "here here ":
            if is_interrupted:
                raise KeyboardInterrupt
            queue.deadline = 0.0

    monkeypatch.setattr(Queue, "_collect_ended", time_is_up)
    console = recorder(tmp_path)
    done, unfinished = names("dmt")
    with pytest.raises(KeyboardInterrupt) if is_interrupted else nullcontext():
        outcome = compare(begun, tmp_path, "cpu", 2, 100, ["dmt"], tmp_path / "kept", console)
        assert (outcome.finished, outcome.failed, outcome.left) == ([done], {}, [unfinished])
    assert f"{done}: test 50.0, " in console.export_text()
    kept = read_results(tmp_path / "kept" / "three.csv")
    assert [run.key.name for run in kept.runs] == [names("supervised")[0], done]


@pytest.mark.parametrize("jobs", [1, 2])
def test_runs_are_sent_to_two_devices(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    """One to each before any has its second, and never more than `jobs` at a time on one."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    outcome = compare(begun, tmp_path, devices="0,2", jobs=jobs, console=Console(quiet=True))
    assert len(outcome.finished) == 6
    order = [run.name for run in read_plan(begun).runs][1:]
    told = [json.loads((tmp_path / "logs" / f"{name}.log").read_text()) for name in order]
    assert [gpu for gpu, *_ in told][: 2 * jobs] == ["4", "6"] * jobs
    assert {gpu for gpu, *_ in told} == {"4", "6"}
    assert {shared for _, shared, *_ in told} == {str(jobs)}
    for gpu, _, began, _ in told:
        assert sum(other == gpu and first <= began < last for other, _, first, last in told) <= jobs


def test_the_command(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def suture(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["suture", "compare", *words])
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0)

    whole = (str(begun), "-o", str(tmp_path), "--devices", "cpu")
    assert suture(*whole, "--only", "dmt", "--minutes", "0") == 1
    assert suture(*whole, "--only", "dmt") == 0, "all runs of --only are finished"
    capsys.readouterr()
    assert suture(*whole, "--only", "dmt", "--only", "unimatch", "--list") == 0
    printed = capsys.readouterr().out
    assert "4 runs, 2 finished" in printed
    assert re.findall(r"__(\w+)__seed-(\d) *│ (\S+)", printed) == [
        *(("dmt", "0", "finished"), ("dmt", "1", "finished")),
        *(("unimatch", "0", "–"), ("unimatch", "1", "–")),
    ]
    for words in ((*whole, "--tables"), (str(tmp_path),), ("--tables", str(tmp_path / "results.csv"))):
        assert suture(*words) == 0
        shown = re.findall(r"│ (\w+)[^│]*│ +10.0% │ +([\d.]+)", capsys.readouterr().out)
        assert shown == [("supervised", "50.00"), ("dmt", "50.00")]
    assert suture(str(tmp_path), "--only", "dmt", "--against", "supervised") == 0
    assert "dmt − supervised" in capsys.readouterr().out
    assert suture(str(tmp_path), "--list") == 2


def test_missing_paths_are_named_before_anything_starts(begun: Path, tmp_path: Path) -> None:
    (tmp_path / "data").rmdir()
    begun.write_text(f"{begun.read_text()}  model.weights: weights/some.safetensors\n")
    shutil.rmtree(tmp_path / "runs")
    with pytest.raises(UserError) as mistake:
        compare(begun, tmp_path / "out", devices="cpu")
    messages = str(mistake.value).splitlines()
    assert [re.findall(r"yaml: (\S+) is .* exist; (\d) runs", line) for line in messages] == [
        [("data.root", "6")],
        [("model.weights", "6")],
    ]
    assert not (tmp_path / "out").exists()


def test_unfit_models_are_named_before_anything_starts(begun: Path, tmp_path: Path) -> None:
    """The others start; if there are none, nothing does."""
    text = FILE.replace("[supervised, pgvcl]", "[supervised, uamt, pgvcl]").replace(
        "store_size: 48", "store_size: null"
    )
    text = text.replace("[0, 1]", "[7]").replace("size: 32", "size: 64")
    begun.write_text(f"{text}  model: {{output_stride: null}}\nsweep: {{model.architecture: [fpn, unet]}}\n")
    console = recorder(tmp_path)
    assert len(compare(begun, tmp_path, devices="cpu", minutes=0, console=console).left) == 6
    printed = console.export_text()
    unet = "made__every-4__uamt__architecture=unet__seed-7"
    assert f"will fail: {unet}: method: uamt" in printed
    begun.write_text(begun.read_text().replace("[fpn, unet]", "[unet]"))
    with pytest.raises(UserError, match=f"{unet}: method: uamt"):
        compare(begun, tmp_path / "out", devices="cpu", only=["uamt"], console=console)
    assert not (tmp_path / "out").exists()
