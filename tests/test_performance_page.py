"""The page about speed says what was measured: its numbers come from files, none is typed by hand."""

import importlib
import re
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def test_the_tables_are_what_the_figures_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    plot = importlib.import_module("plot")
    try:
        text = plot.PAGE.read_text(encoding="utf-8")
        assert plot.page(text) == text, "run python benchmarks/plot.py"
        assert set(plot.TABLES) == {line[5:-4] for line in text.splitlines() if line.startswith("<!-- ")} - {"end"}
    finally:
        for name in ("plot", "common", "growth"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize("file", sorted(path.name for path in (BENCHMARKS.parent / "docs" / "performance").iterdir()))
def test_every_file_of_figures_is_shown(file: str) -> None:
    assert f"<!-- {Path(file).stem} -->" in (BENCHMARKS.parent / "docs" / "performance.md").read_text(encoding="utf-8")


def test_the_tests_that_the_page_names_exist() -> None:
    root = BENCHMARKS.parent
    text = (root / "docs" / "performance.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 10
    for file, name in named:
        assert f"def {name}" in (root / file).read_text(encoding="utf-8"), f"{file}::{name}"
