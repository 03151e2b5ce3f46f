"""The small files of runs, for keeping."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from by_hand import scores

from suture.comparison.collect import collect
from suture.comparison.compare import write_tables
from suture.comparison.queue import is_finished
from suture.comparison.results import read_results
from suture.core.errors import UserError
from suture.core.io import read_yaml, write_json, write_text

Write = Callable[..., Path]


def test_what_is_kept_gives_the_same_tables(tmp_path: Path, write_run: Write) -> None:
    data = {
        "root": "/home/ada/patients/vocalfolds",
        "size": 64,
        "labelling": {"every": 10, "list": None},
        "cache": "/c",
    }
    for method in ("supervised", "pgvcl"):
        folder = write_run(f"d__every-10__{method}__seed-0", {"test": scores(0.5)}, config={"data": data})
        write_text(folder / "stages" / "1-train" / "metrics.csv", "step,loss\n1,2\n")
        write_text(folder / "model.safetensors", "large")
    (tmp_path / "runs" / "d__every-10__unfinished__seed-0").mkdir()
    write_json(
        tmp_path / "plan.json",
        {"title": "kept", "reference": "pgvcl", "runs": [p.name for p in (tmp_path / "runs").iterdir()]},
    )
    kept = tmp_path / "kept"
    assert collect(tmp_path, kept) == ["d__every-10__pgvcl__seed-0", "d__every-10__supervised__seed-0"]
    run = kept / "runs" / "d__every-10__pgvcl__seed-0"
    assert sorted(path.name for path in run.rglob("*") if path.is_file()) == [
        "config.yaml",
        "data.json",
        "done.json",
        "environment.json",
        "metrics.csv",
        "metrics.json",
    ]
    config = read_yaml(run / "config.yaml")
    assert (config["data"]["root"], config["data"]["cache"]) == ("vocalfolds", "c")
    assert not any("ada" in path.read_text() for path in kept.rglob("*") if path.is_file())
    before = {path.name: path.read_bytes() for path in write_tables(tmp_path)}
    assert {path.name: path.read_bytes() for path in write_tables(kept)} == before


def test_a_run_that_was_made_anew_leaves_no_stage_of_before(tmp_path: Path, write_run: Write) -> None:
    """Else the tables of what is kept would count its steps too."""
    name, done = "d__every-10__mine__seed-0", {"steps": 50, "batch": 8, "seconds": 1.0}
    folder = write_run(name, {"test": scores(0.5)}, stages={"pretrain": done, "finetune": done})
    collect(tmp_path, tmp_path / "kept")
    shutil.rmtree(folder)
    write_run(name, {"test": scores(0.5)}, stages={"train": done})
    collect(tmp_path, tmp_path / "kept")
    (board,) = read_results(tmp_path / "kept").boards
    assert list(board.runs[0].stages) == ["train"]


@pytest.mark.parametrize("path", ["/home/ada/x.csv", "C:\\ada", "~/x", "\\\\host\\share"])
def test_any_other_path_of_the_machine_is_refused(tmp_path: Path, write_run: Write, path: str) -> None:
    data = {"root": "x", "size": 64, "labelling": {}, "cache": None, "options": {"exclude": path}}
    write_run("d__every-10__supervised__seed-0", {"test": scores(0.5)}, config={"data": data})
    with pytest.raises(UserError, match=r"data.options.exclude is .* a path of this machine"):
        collect(tmp_path, tmp_path / "kept")


def test_a_copy_that_is_cut_off_is_not_finished(
    tmp_path: Path, write_run: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        if path.name == "done.json":
            raise OSError("No space left on device")
        write_text(path, text)

    write_run("d__every-10__supervised__seed-0", {"test": scores(0.5)})
    with monkeypatch.context() as patch:
        patch.setattr("suture.comparison.collect.write_text", full)
        with pytest.raises(OSError, match="No space"):
            collect(tmp_path, tmp_path / "kept")
    assert not is_finished(tmp_path / "kept", "d__every-10__supervised__seed-0")
    collect(tmp_path, tmp_path / "kept")
    assert is_finished(tmp_path / "kept", "d__every-10__supervised__seed-0")


def test_nothing_to_keep(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"No folder in {tmp_path / 'runs'} is a finished run"):
        collect(tmp_path, tmp_path / "kept")
