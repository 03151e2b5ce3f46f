"""How runs are named beside others."""

import re
import shutil
from pathlib import Path

from rich.console import Console
from tiny_runs import Runs

from suture.reports.report import write_report
from suture.reports.run_facts import read_runs


def copies(tmp_path: Path, **named: Path) -> list[Path]:
    """Copies of runs under other names."""
    return [shutil.copytree(run, tmp_path / name) for name, run in named.items()]


def names(folders: list[Path]) -> list[str]:
    return [run.name for run in read_runs(folders)]


def test_what_only_one_run_has_is_said_one_way(runs: Runs, tmp_path: Path) -> None:
    """Stages and single settings alike, and whichever run has them."""
    folders = copies(tmp_path, plain=runs.supervised, strong=runs.supervised)
    config = folders[1] / "config.yaml"
    said = config.read_text().replace("name: supervised", "name: strong").replace("ema: null", "ema: 0.5")
    config.write_text(said)
    plain, strong = read_runs(folders)
    lines = strong.differences_to(plain)
    assert {"method.name: supervised → strong", "method.train.ema: null → 0.5"} <= set(lines)
    assert {"method.train.cutmix: only in strong", "method.train.strong: only in strong"} <= set(lines)
    assert "method.train.cutmix: only in strong" in plain.differences_to(strong)
    assert "method.contrast: only in pgvcl" in read_runs([runs.pgvcl])[0].differences_to(plain)


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
