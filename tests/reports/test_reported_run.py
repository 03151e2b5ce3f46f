"""Titles of runs side by side, and the differences between their settings."""

import shutil
from pathlib import Path

from tiny_runs import Runs

from suture.reports.reported_run import read_runs


def copies(tmp_path: Path, runs: dict[str, Path]) -> list[Path]:
    """Copies of runs under other names."""
    return [shutil.copytree(run, tmp_path / name) for name, run in runs.items()]


def titles(folders: list[Path]) -> list[str]:
    return [run.title for run in read_runs(folders)]


def test_stages_of_one_run_only_are_named(runs: Runs, tmp_path: Path) -> None:
    folders = copies(tmp_path, {"plain": runs.supervised, "strong": runs.supervised})
    config = folders[1] / "config.yaml"
    config.write_text(config.read_text().replace("name: supervised", "name: strong").replace("ema: null", "ema: 0.5"))
    plain, strong = read_runs(folders)
    assert {"method.name: supervised → strong", "method.train.ema: null → 0.5"} <= set(strong.differences_to(plain))
    (pgvcl,) = read_runs([runs.pgvcl])
    assert {"method.contrast: only in pgvcl", "method.train: only in plain"} <= set(pgvcl.differences_to(plain))


def test_runs_of_a_comparison_are_titled_by_what_differs(runs: Runs, tmp_path: Path) -> None:
    methods = {"plain": runs.supervised, "pgvcl__P1N4": runs.pgvcl, "pgvcl__P0N0": runs.pgvcl}
    folders = copies(tmp_path, {f"made__every-6__{name}__seed-0": run for name, run in methods.items()})
    assert titles(folders) == ["plain", "pgvcl · P1N4", "pgvcl · P0N0"]
    assert titles(folders[:1]) == ["made__every-6__plain__seed-0"]
