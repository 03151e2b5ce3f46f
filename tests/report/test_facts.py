"""How runs are named beside others."""

import re
import shutil
from pathlib import Path

from rich.console import Console
from tiny_runs import Runs

from suture.report.facts import read_runs
from suture.report.report import write_report


def copies(tmp_path: Path, **named: Path) -> list[Path]:
    """Copies of runs under other names."""
    return [shutil.copytree(run, tmp_path / name) for name, run in named.items()]


def names(folders: list[Path]) -> list[str]:
    return [run.name for run in read_runs(folders)]


def test_short_names_are_those_of_the_folders(runs: Runs, tmp_path: Path) -> None:
    assert names(copies(tmp_path, before=runs.supervised, after=runs.pgvcl)) == ["before", "after"]


def test_runs_of_a_comparison_are_named_by_what_differs(runs: Runs, tmp_path: Path, console: Console) -> None:
    folders = copies(
        tmp_path,
        **{
            "made__every-6__plain__seed-0": runs.supervised,
            "made__every-6__pgvcl__P1N4__seed-0": runs.pgvcl,
            "made__every-6__pgvcl__P0N0__seed-0": runs.pgvcl,
        },
    )
    assert names(folders) == ["plain", "pgvcl · P1N4", "pgvcl · P0N0"]
    assert names(folders[:1]) == ["made__every-6__plain__seed-0"], "alone it is what the folder says"
    page = write_report(folders[:2], tmp_path / "r.html", False, console, figures=tmp_path / "figures").read_text()
    assert ">made__every-6__pgvcl__P1N4__seed-0<" in page, "which folder it is stands among the facts"
    assert (tmp_path / "figures" / "embeddings-pgvcl-P1N4.png").exists()


def test_long_names_give_way_to_method_labels_and_seed(runs: Runs, tmp_path: Path) -> None:
    folders = copies(
        tmp_path,
        **{
            "a-long-name-for-a-supervised-run": runs.supervised,
            "a-long-name-for-a-run-of-pgvcl": runs.pgvcl,
            "the-same-with-another-seed": runs.pgvcl,
        },
    )
    assert names(folders[:2]) == ["supervised", "pgvcl"]
    assert names(folders) == [folder.name for folder in folders], "what differs does not tell them apart"
    config = folders[2] / "config.yaml"
    config.write_text(re.sub("^seed: .*", "seed: 7", config.read_text(), flags=re.MULTILINE))
    assert names(folders) == ["supervised · seed 0", "pgvcl · seed 0", "pgvcl · seed 7"]
