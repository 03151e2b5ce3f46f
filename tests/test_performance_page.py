"""The page about speed says what was measured: its numbers come from files, none is typed by hand."""

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def test_the_tables_are_what_the_figures_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    plot = importlib.import_module("plot")
    try:
        text = plot.PAGE.read_text(encoding="utf-8")
        assert plot.page(text) == text, "run python benchmarks/plot.py"
        marks = {line[5:-4] for line in text.splitlines() if line.startswith("<!-- ")}
        assert {*plot.TABLES, "bars", "end"} == marks
    finally:
        for name in ("plot", "common", "growth"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize("file", sorted(path.name for path in (BENCHMARKS.parent / "docs" / "performance").iterdir()))
def test_every_file_of_figures_is_shown(file: str) -> None:
    assert f"<!-- {Path(file).stem} -->" in (BENCHMARKS.parent / "docs" / "performance.md").read_text(encoding="utf-8")


def test_the_tests_that_the_page_names_exist() -> None:
    root = BENCHMARKS.parent
    text = (root / "docs" / "performance.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)((?:::\w+)*)`", text)
    assert len(named) > 10
    missing = [f"{file}{name}" for file, name in named if name not in ids(root / file)]
    assert not missing, "pytest would collect nothing by these names"


def ids(file: Path) -> set[str]:
    """What may stand behind a test file's name, by its syntax: `::test_x`, and `::TestY::test_x`, inherited or not."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

    def tests(node: ast.Module | ast.ClassDef) -> Iterator[str]:
        yield from (part.name for part in node.body if isinstance(part, ast.FunctionDef) and part.name[:5] == "test_")
        for base in getattr(node, "bases", ()):
            if isinstance(base, ast.Name) and base.id in classes:
                yield from tests(classes[base.id])

    collected = {name: node for name, node in classes.items() if name.startswith("Test")}
    inside = {f"::{name}::{test}" for name, node in collected.items() for test in tests(node)}
    return {f"::{test}" for test in tests(tree)} | inside | {"", *(f"::{name}" for name in collected)}
