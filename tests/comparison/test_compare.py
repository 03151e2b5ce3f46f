"""A whole small comparison with a sweep: killed, with a run that fails, gone on with, tabulated; and a part of one."""

import json
import os
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
from suture.comparison.collect import collect
from suture.comparison.compare import compare, listing, write_tables
from suture.comparison.plan import read_plan
from suture.comparison.queue import Device, Queue
from suture.comparison.results import read_results
from suture.core.errors import UserError
from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic
from suture.training.run_folder import Run

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


def finished(out: Path) -> list[Path]:
    return sorted(out.glob("runs/*/metrics.json"))


def kill_after_the_first_run(file: Path, out: Path) -> None:
    """Start the comparison in a process of its own, and kill it when one run is finished."""
    words = ["suture", "compare", file, "-o", out, "--devices", "cpu", "--jobs", "2"]
    with started(*words, said=file.with_name("killed.txt")) as process:
        while not finished(out):
            assert process.is_alive(), "it ended before a run was finished"
            time.sleep(0.05)
        children = psutil.Process(process.pid).children()
    if sys.platform == "linux":
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive, "its runs hold their devices and locks"


@pytest.mark.timeout(900)
def test_a_comparison_survives_a_kill_and_a_failing_run(tmp_path: Path) -> None:
    settings = SyntheticSettings(cases=4, frames=8, shots=2, width=48, height=48)
    write_synthetic(tmp_path / "data", settings, container="png", progress=False)
    file, out = tmp_path / "small.yaml", tmp_path / "out"
    file.write_text(f"{FILE}sweep: {{bank: {{method.contrast.keys.mode: bank}}}}\n")
    console = Console(record=True, file=(tmp_path / "said.txt").open("w"), width=200)

    kill_after_the_first_run(file, out)
    done = {path: path.stat().st_mtime_ns for path in finished(out)}
    assert done

    busy = "made__every-4__pgvcl__bank__seed-1"
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
    assert (pgvcl.title, len(pgvcl.runs), pgvcl.mark) == ("pgvcl · bank", 2, "")  # 2 + 2 supervised steps are 4
    assert {run.config["method"]["contrast"]["keys"]["mode"] for run in pgvcl.runs} == {"bank"}, "as swept"
    assert (out / "sweep-made-every-4.png").exists()
    assert supervised.runs[0].facts["supervised steps"] == "4"
    assert [run.runs_at_a_time for run in supervised.runs] == [2, 2]
    assert listing(read_plan(file), out).row_count == 4

    collect(out, tmp_path / "kept")
    written = write_tables(tmp_path / "kept")
    assert all(path.read_bytes() == (out / path.name).read_bytes() for path in written)


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
    like = write_run(first.name, {"test": scores(0.5)}, config=first.config.model_dump(mode="json"))
    script = tmp_path / "train"
    script.write_text(TRAIN.format(python=sys.executable, like=str(like)))
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return file


FAILING = """
import sys
folder = sys.argv[6]
print("so far so good")
print(f"error: seed {folder[-1]} is unlucky." if "unimatch" in folder else f"error: [{folder}] is full: make room.")
sys.exit(2)
"""


def test_what_fails_alike_in_several_runs_is_told_once_and_where(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Path(sys.executable)
    script.write_text(script.read_text().splitlines()[0] + FAILING)
    console = Console(record=True, file=(tmp_path / "said.txt").open("w"), width=200)
    monkeypatch.setattr("suture.comparison.compare.devices_of", lambda _: [Device("0"), Device("1")])
    outcome = compare(begun, tmp_path, console=console)

    dmt, unimatch = ([f"made__every-4__{method}__seed-{seed}" for seed in (0, 1)] for method in ("dmt", "unimatch"))
    full = ["made__every-4__supervised__seed-1", *dmt]
    assert outcome.failed == {
        **{name: f"[{tmp_path / 'runs' / name}] is full: make room." for name in full},
        **{name: f"seed {seed} is unlucky." for seed, name in enumerate(unimatch)},
    }
    assert json.loads((tmp_path / "failed.json").read_text()) == outcome.failed

    lines = console.export_text().splitlines()
    begun_first = next(line for line in lines if line.startswith(dmt[0]))
    assert begun_first == f"{dmt[0]} begins ({tmp_path / 'logs' / dmt[0]}.log)"
    found = [line for line in lines if line.startswith(tuple(f"{name} failed" for name in full))]
    first, *others = [re.sub(r"\(GPU [01], ", "(", line) for line in found]
    assert all(" (GPU " in line for line in found)
    assert first == f"{dmt[0]} failed: {outcome.failed[dmt[0]]} ({tmp_path / 'logs' / dmt[0]}.log)"
    names = [full[0], dmt[1]]
    assert others == [f"{name} failed as {dmt[0]} did ({tmp_path / 'logs' / name}.log)" for name in names]
    told = f"{dmt[0]}, {full[0]} and {dmt[1]}: "
    unlucky = [f"{name}: seed {seed} is unlucky." for seed, name in enumerate(unimatch)]
    assert sorted(line for line in lines if line.startswith("failed: ")) == sorted(
        f"failed: {one}" for one in (f"{told}[{tmp_path / 'runs' / 'RUN'}] is full: make room.", *unlucky)
    )
    for page in ("tables.md", "tables.tex", "tables.html"):
        text = (tmp_path / page).read_text()
        assert text.count("Failed: ") == 3
        assert text.count("RUN] is full: make room.") == 1
        assert all(f"Failed: {one}" in text for one in unlucky)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        (
            "config.yaml",
            "",
            "holds nothing, expected a mapping of keys to values: put back a whole copy, or write it again.",
        ),
        ("config.yaml", "format: 4\nseed: 0\n", "is not as Suture wrote it (method: missing): put back a whole copy"),
        ("metrics.json", "", "is not valid JSON at line 1, column 1 (Expecting value): it is damaged or cut off; put"),
        ("metrics.json", '{"test": {"prot', "`suture evaluate` scores a run again."),
        ("stages/1-train/done.json", "", "is not valid JSON at line 1, column 1"),
    ],
)
def test_a_damaged_run_is_named_left_as_it_is_and_stops_no_other(
    begun: Path, tmp_path: Path, file: str, content: str, said: str
) -> None:
    kept, name = tmp_path / "kept", "made__every-4__supervised__seed-0"
    other = begun.with_name("like")
    shutil.copytree(tmp_path / "runs" / name, other)
    script = Path(sys.executable)
    script.write_text(script.read_text().replace(str(tmp_path / "runs" / name), str(other)))
    collect(tmp_path, kept)
    damaged = tmp_path / "runs" / name / file
    damaged.write_text(content)
    before = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    console = Console(record=True, file=(tmp_path / "said.txt").open("w"), width=400)
    outcome = compare(begun, tmp_path, devices="cpu", kept=kept, console=console)
    assert (len(outcome.finished), list(outcome.failed), outcome.left) == (5, [name], [])
    assert outcome.failed[name].startswith(f"{damaged} ")
    assert said in outcome.failed[name]
    printed = console.export_text()
    for word in ("not collected", "damaged", "failed"):
        assert re.search(rf"{word}: ({name}: )?{re.escape(outcome.failed[name])}\n", printed)
    assert f"Failed: {name}: {damaged.name} " in (tmp_path / "tables.md").read_text()
    assert {path: path.read_bytes() for path in before} == before
    assert len(read_results(kept).boards[0].runs) == 6, "the whole copy of before is there"
    assert [*listing(read_plan(begun), tmp_path).columns[1].cells].count("damaged") == 1
    shutil.copy(other / file, damaged)
    assert len(compare(begun, tmp_path, devices="cpu", console=console).finished) == 6


def test_a_run_that_cannot_be_started_stops_no_other(begun: Path, tmp_path: Path) -> None:
    dmt = [f"made__every-4__dmt__seed-{seed}" for seed in (0, 1)]
    for name in dmt:
        (tmp_path / "logs" / f"{name}.log").mkdir(parents=True)
    console = Console(record=True, file=(tmp_path / "said.txt").open("w"), width=400)
    outcome = compare(begun, tmp_path, devices="cpu", console=console)
    assert (len(outcome.finished), list(outcome.failed), outcome.left) == (4, dmt, [])
    log = tmp_path / "logs" / f"{dmt[0]}.log"
    assert outcome.failed[dmt[0]] == f"{log} cannot be read or written (Is a directory)"
    printed = console.export_text()
    assert f"\n{dmt[0]} failed: {outcome.failed[dmt[0]]}\n" in printed
    assert f"\n{dmt[1]} failed as {dmt[0]} did\n" in printed
    assert json.loads((tmp_path / "failed.json").read_text()) == outcome.failed


def test_why_a_run_failed_is_still_known_when_one_that_failed_before_is_started(begun: Path, tmp_path: Path) -> None:
    failing, last = "made__every-4__dmt__seed-0", "made__every-4__unimatch__seed-1"
    (tmp_path / "failed.json").write_text(json.dumps({last: "of an earlier start"}))
    (tmp_path / "logs" / f"{failing}.log").mkdir(parents=True)
    outcome = compare(begun, tmp_path, devices="cpu", console=Console(quiet=True))
    assert list(outcome.failed) == [failing]
    assert json.loads((tmp_path / "failed.json").read_text()) == outcome.failed
    assert f"Failed: {failing}: " in (tmp_path / "tables.md").read_text()


def test_a_damaged_config_of_a_run_that_is_not_finished_stops_no_other(begun: Path, tmp_path: Path) -> None:
    """`suture train` tells of it; here it is the script that fails."""
    name = "made__every-4__dmt__seed-0"
    (tmp_path / "runs" / name).mkdir()
    (tmp_path / "runs" / name / "config.yaml").touch()
    outcome = compare(begun, tmp_path, devices="cpu", console=Console(quiet=True))
    assert (len(outcome.finished), list(outcome.failed)) == (5, [name])


def test_only_some_methods_are_trained_while_plan_and_tables_are_of_all(begun: Path, tmp_path: Path) -> None:
    def names(*methods: str) -> list[str]:
        return [f"made__every-4__{method}__seed-{seed}" for seed in (0, 1) for method in methods]

    console = Console(record=True, file=(tmp_path / "said.txt").open("w"), width=200)
    outcome = compare(begun, tmp_path, devices="cpu", minutes=0, only=["dmt"], console=console)
    assert (outcome.finished, outcome.left) == ([], names("dmt"))
    said = console.export_text()
    assert "Only dmt: 2 of 6 runs.\n" in said
    assert "finished already" not in said
    assert "Left for want of time: 2 runs; start the same command again to go on." in said
    unfinished = "Not finished: 5 of 6 runs (supervised 1, dmt 2, unimatch 2)."
    assert unfinished in (tmp_path / "tables.md").read_text()
    beside = "beside it tables.md, tables.tex, scores.csv, runs.csv and 1 picture"
    assert f"{unfinished}\nTables: {tmp_path / 'tables.html'}; {beside}\n" in said

    outcome = compare(begun, tmp_path, devices="cpu", only=["dmt"], console=console)
    assert (outcome.finished, outcome.failed, outcome.left) == (names("dmt"), {}, [])
    assert sorted(path.parent.name for path in finished(tmp_path)) == sorted([*names("dmt"), names("supervised")[0]])
    outcome = compare(begun, tmp_path, devices="cpu", minutes=0, only=["unimatch", "dmt"], console=console)
    assert (outcome.finished, outcome.left) == (names("dmt"), names("unimatch"))
    said = console.export_text()
    assert "Only unimatch and dmt: 4 of 6 runs.\n2 of 4 runs are finished already.\n" in said

    assert json.loads((tmp_path / "plan.json").read_text())["runs"] == names("supervised", "dmt", "unimatch")
    (board,) = read_results(tmp_path).boards
    assert [row.title for row in board.rows] == ["supervised", "dmt"]


def test_each_run_is_kept_as_it_finishes(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that were finished before, and whatever becomes of the tables; what cannot be kept stops nothing."""
    console = Console(record=True, file=(tmp_path / "said.txt").open("w"), width=200)

    def lost(folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("suture.comparison.compare.read_results", lost)
        with pytest.raises(KeyboardInterrupt):
            compare(begun, tmp_path, devices="cpu", only=["supervised"], kept=tmp_path / "kept", console=console)
    both = [f"made__every-4__supervised__seed-{seed}" for seed in (0, 1)]
    assert [path.parent.name for path in finished(tmp_path / "kept")] == both
    assert (tmp_path / "kept" / "plan.json").exists()
    assert list(json.loads((tmp_path / "kept" / "times.json").read_text())) == both

    (tmp_path / "file").write_text("")
    outcome = compare(begun, tmp_path, devices="cpu", only=["dmt"], kept=tmp_path / "file", console=console)
    assert len(outcome.finished) == 2
    assert console.export_text().count("not collected: ") == 3, "those of before, then each"


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


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_run_that_finishes_while_it_is_stopped_is_kept(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    """Asked to end for want of time, or by Ctrl-C, it was just done; the other one was not."""
    first = tmp_path / "runs" / "made__every-4__supervised__seed-0"
    (tmp_path / "times.json").write_text(json.dumps({first.name: 0.001}))
    script = Path(sys.executable)
    script.write_text(script.read_text().splitlines()[0] + ENDING.format(like=str(first)))
    listening = tmp_path / "listening"

    def time_is_up(queue: Queue) -> None:
        if listening.exists() and listening.read_text() == "here here ":
            if interrupted:
                raise KeyboardInterrupt
            queue.ends = 0.0

    monkeypatch.setattr(Queue, "_take_back", time_is_up)
    console = Console(record=True, file=(tmp_path / "said.txt").open("w"), width=200)
    done, unfinished = (f"made__every-4__dmt__seed-{seed}" for seed in (0, 1))
    with pytest.raises(KeyboardInterrupt) if interrupted else nullcontext():
        outcome = compare(begun, tmp_path, "cpu", 2, 1, ["dmt"], tmp_path / "kept", console)
        assert (outcome.finished, outcome.failed, outcome.left) == ([done], {}, [unfinished])
    assert [path.parent.name for path in finished(tmp_path / "kept")] == [done, first.name]
    assert f"{done}: mIoU 50.0, " in console.export_text()
    assert json.loads((tmp_path / "times.json").read_text()).keys() == {first.name, done}


def test_a_run_is_not_replaced_by_its_copy(begun: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="where the runs themselves are"):
        compare(begun, tmp_path, devices="cpu", kept=tmp_path)
    with pytest.raises(UserError, match="where the runs themselves are"):
        collect(tmp_path, tmp_path / "runs" / "..")
    assert {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("jobs", [1, 2])
def test_runs_are_sent_to_two_devices(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    """One to each before any has its second, and never more than `jobs` at a time on one."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    outcome = compare(begun, tmp_path, devices="0,2", jobs=jobs, console=Console(quiet=True))
    assert len(outcome.finished) == 6
    order = [run.name for run in read_plan(begun).runs if run.place[2:] != ("supervised", "", 0)]
    told = [json.loads((tmp_path / "logs" / f"{name}.log").read_text()) for name in order]
    assert [gpu for gpu, *_ in told][: 2 * jobs] == ["4", "6"] * jobs
    assert {gpu for gpu, *_ in told} == {"4", "6"}
    assert {shared for _, shared, *_ in told} == {str(jobs)}
    for gpu, _, began, _ in told:
        assert sum(other == gpu and first <= began < last for other, _, first, last in told) <= jobs


def test_the_command_with_only(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def suture(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["suture", "compare", *words])
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0)

    whole = (str(begun), "-o", str(tmp_path), "--devices", "cpu")
    assert suture(*whole, "--only", "dmt", "--minutes", "0") == 1
    assert suture(*whole, "--only", "dmt") == 0, "all that was asked for is there"
    assert suture(*whole, "--only", "dmt", "--only", "unimatch", "--list", "--minutes", "0", "--tables") == 0
    listed, told = capsys.readouterr()
    assert told.endswith("--list takes no notice of --devices, --minutes and --tables.\n")
    assert "4 runs, 2 finished" in listed
    assert re.findall(r"__(\w+)__seed-(\d) *│ (\S+)", listed) == [
        ("dmt", "0", "finished"),
        ("dmt", "1", "finished"),
        ("unimatch", "0", "–"),
        ("unimatch", "1", "–"),
    ]
    for words in ((*whole, "--tables"), (str(tmp_path),)):
        assert suture(*words, "--jobs", "2") == 0
        unused = "--devices and --jobs" if "--devices" in words else "--jobs"
        said = capsys.readouterr()
        assert f"The writing of tables takes no notice of {unused}.\n" in said.err
        shown = re.findall(r"│ (\w+)[^│]*│ +10.0% │ +([\d.]+)", said.out)
        assert shown == [("supervised", "50.00"), ("dmt", "50.00")], "as after a training"
        assert "deviation over 1 to 2 seeds" in said.out
        *_, first, second = said.out.splitlines()
        unfinished = [f"made__every-4__{run}" for run in ("unimatch__seed-0", "supervised__seed-1", "unimatch__seed-1")]
        assert first == f"Not finished: 3 of 6 runs ({', '.join(unfinished)})."
        assert second.startswith(f"Tables: {tmp_path / 'tables.html'}; beside it tables.md, ")
        assert suture(*words, "--only", "dmt") == 2
        assert capsys.readouterr().err == "error: --only is dmt, but tables are of all methods: leave it out.\n"

    assert suture(str(tmp_path), "--list") == 2
    assert f"{tmp_path} is a folder, but --list tells of a comparison file" in capsys.readouterr().err

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("suture.comparison.compare.Queue.train", interrupted)
    assert suture(*whole, "--only", "unimatch") == 130
    assert f"to go on: suture compare {begun} -o {tmp_path} --devices cpu --only unimatch\n" in capsys.readouterr().err


def test_the_list_cuts_no_name_off(begun: Path, tmp_path: Path) -> None:
    """As it is what `--only` takes."""
    plan, console = read_plan(begun), Console(record=True, file=(tmp_path / "said.txt").open("w"), width=30)
    console.print(listing(plan, tmp_path))
    parts = re.findall(r"^│ (\S+) ", console.export_text(), re.MULTILINE)
    assert "".join(parts) == "".join(run.name for run in plan.runs)
    assert len(parts) > len(plan.runs)


def test_a_path_that_leads_nowhere_is_told_before_anything_starts(begun: Path, tmp_path: Path) -> None:
    """Each in one sentence, however many runs need it, together with what else is wrong."""
    (tmp_path / "data").rmdir()
    text = begun.read_text().replace("unimatch]", "uamt]")
    begun.write_text(f"{text}  model: {{architecture: unet, output_stride: null, weights: weights/some.safetensors}}\n")
    shutil.rmtree(tmp_path / "runs")
    with pytest.raises(UserError) as mistake:
        compare(begun, tmp_path / "out", devices="cpu")
    root, weights = (os.path.relpath(tmp_path / name) for name in ("data", "weights/some.safetensors"))
    first, second, third = str(mistake.value).splitlines()
    need = "which does not exist, but 6 runs to be trained need it: put it there, or mend the path."
    assert first == f"{begun}: data.root leads to {root}, {need}"
    assert second == f"{begun}: model.weights leads to {weights}, {need}"
    uamt = [f"made__every-4__uamt__seed-{seed}" for seed in (0, 1)]
    assert third.startswith(
        f"{begun}: {' and '.join(uamt)}: method: uamt measures uncertainty by dropout and unet with"
    )
    assert not (tmp_path / "out").exists()


def test_what_no_unfinished_run_needs_is_not_missed(begun: Path, tmp_path: Path) -> None:
    """Collected results of another machine, all finished, are tabulated without their data."""
    console = Console(quiet=True)
    assert not compare(begun, tmp_path, devices="cpu", only=["supervised"], console=console).failed
    (tmp_path / "data").rmdir()
    assert len(compare(begun, tmp_path, devices="cpu", only=["supervised"], console=console).finished) == 2
    with pytest.raises(UserError, match=r"data\.root leads to .*, but 2 runs to be trained need it"):
        compare(begun, tmp_path, devices="cpu", only=["dmt"], console=console)


def test_frames_that_methods_store_in_several_sizes_are_told_before_anything_starts(
    begun: Path, tmp_path: Path
) -> None:
    """Not where one size is stated."""
    shutil.rmtree(tmp_path / "runs")

    def said(stored: str) -> str:
        text = FILE.replace("[supervised, pgvcl]", "[supervised, strong, pgvcl]").replace("store_size: 48", stored)
        begun.write_text(text.replace("size: 32", "size: 64"))
        console = Console(record=True, file=(tmp_path / "said.txt").open("w"), width=200)
        outcome = compare(begun, tmp_path / "out", devices="cpu", minutes=0, console=console)
        assert len(outcome.left) == 6
        return console.export_text()

    assert said("store_size: null").startswith(
        "made: frames are stored with a short side of 86 (supervised, strong) and 143 (pgvcl), where they are not "
        "smaller themselves; the tables mark such rows as not comparable: to compare them, state one data.store_size "
        "for all.\n"
    )
    assert "stored" not in said("store_size: 48")


def test_a_model_that_a_method_refuses_is_told_before_anything_starts(begun: Path, tmp_path: Path) -> None:
    """The others start; where there are none, nothing does."""
    sweep = "sweep: {model.architecture: [deeplabv3plus, fpn, unet]}\n"
    text = begun.read_text().replace("[supervised, dmt, unimatch]", "[supervised, uamt]").replace("[0, 1]", "[7]")
    begun.write_text(f"{text}  model: {{output_stride: null}}\n{sweep}")
    console = Console(record=True, file=(tmp_path / "said.txt").open("w"), width=200)
    outcome = compare(begun, tmp_path, devices="cpu", minutes=0, console=console)
    assert len(outcome.left) == 6
    unet = "made__every-4__uamt__architecture=unet__seed-7"
    assert f"will fail: {unet}: method: uamt measures uncertainty by dropout and unet with" in console.export_text()

    begun.write_text(begun.read_text().replace("[deeplabv3plus, fpn, unet]", "[unet]"))
    with pytest.raises(UserError, match=f"{begun}: {unet}: method: uamt measures"):
        compare(begun, tmp_path / "out", devices="cpu", only=["uamt"], console=console)
    assert not (tmp_path / "out").exists()
    begun.write_text(begun.read_text().replace("[unet]", "[unets]"))
    with pytest.raises(UserError, match=r"architecture: there is no 'unets'"):
        compare(begun, tmp_path / "out", devices="cpu", console=console)
