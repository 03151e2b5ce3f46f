"""Artefacts that leave the machine name no folder, user or host."""

from pathlib import Path

import pytest
from rich.console import Console
from tiny_runs import PLANTED, Runs

from suture.cli import main
from suture.comparison.compare import show_tables


def test_outputs_hold_no_planted_name(
    runs: Runs, both: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["suture", "export", str(runs.supervised), "-o", str(tmp_path / "model.onnx")])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    console = Console(record=True, file=(tmp_path / "scores.txt").open("w"), width=200)
    show_tables(runs.supervised.parent, tmp_path / "tables", console)
    folders = (both.parent, tmp_path, runs.supervised)
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    kept = {"config.yaml", "scores.txt"}  # a config names the folders that it was given
    contents = {file.name: file.read_bytes() for file in files if file.name not in kept}
    assert {"report.html", "model.onnx", "results.csv", "results.tex", "metrics.csv", "data.json"} <= contents.keys()
    assert any(name.endswith("MODEL_CARD.md") for name in contents)
    found = {(name, planted) for name, one in contents.items() for planted in PLANTED if planted.encode() in one}
    assert found == set()
