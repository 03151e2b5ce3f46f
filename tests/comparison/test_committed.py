"""The committed tables are what today's code makes of the committed runs, and their plans those of the files."""

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from suture.comparison.compare import write_tables
from suture.comparison.plan import read_plan, require_unchanged
from suture.comparison.render import latex
from suture.comparison.tables import Cell, Table
from suture.core.errors import UserError

RESULTS = Path(__file__).parents[2] / "docs" / "results"
plan_of = cache(read_plan)
needs_latex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")


@pytest.mark.parametrize("folder", sorted(path.parent.name for path in RESULTS.glob("*/plan.json")))
def test_the_tables_are_those_of_the_runs(folder: str, tmp_path: Path) -> None:
    for path in write_tables(RESULTS / folder, tmp_path):
        committed = RESULTS / folder / path.name
        mend = f"make it again: suture compare docs/results/{folder}"
        assert committed.exists(), mend
        if path.suffix != ".png":
            assert without_pictures(path) == without_pictures(committed), mend


@pytest.mark.parametrize("folder", sorted(path.parent.name for path in RESULTS.glob("*/plan.json")))
def test_the_runs_are_those_of_the_plan(folder: str) -> None:
    """A default that changes must be stated where runs learnt by it, unless the file names the commit they need."""
    file = RESULTS / f"{folder}.yaml"
    if file.exists() and "at commit" not in file.read_text(encoding="utf-8"):
        require_unchanged(plan_of(file), RESULTS / folder)


def test_the_plans_are_those_of_the_files() -> None:
    """So that tables say how much of a file is not done yet. Files with settings that are gone need their commit."""
    planned = {}
    for file in RESULTS.glob("*.yaml"):
        plan = file.with_suffix("") / "plan.json"
        try:
            planned[file.stem] = [run.name for run in plan_of(file).runs]
        except UserError as error:
            if "there is no setting" not in str(error):
                raise
        else:
            if plan.exists():
                assert json.loads(plan.read_text(encoding="utf-8"))["runs"] == planned[file.stem], file.stem
    assert {"vocalfolds", "vocalfolds-patients", "vocalfolds-ablation", "vocalfolds-tuning"} <= planned.keys()


def without_pictures(file: Path) -> str:
    """Its text; a picture's bytes are not the same with every version of the libraries that draw and pack it."""
    return re.sub('base64,[^"]*', "", file.read_bytes().decode("utf-8"))


@needs_latex
@pytest.mark.parametrize("folder", ["vocalfolds", "vocalfolds-recipe-views"])
def test_latex_takes_the_tables(folder: str, tmp_path: Path) -> None:
    """With the packages that their first line names, and nothing else."""
    tables = (RESULTS / folder / "tables.tex").read_text(encoding="utf-8")
    typeset(tables, tables.splitlines()[0].removeprefix("% needs "), tmp_path)


@needs_latex
def test_latex_cuts_nothing_off_a_long_table(tmp_path: Path) -> None:
    rows = [[Cell(f"method {row}"), Cell(f"{row}.00 ± 1.00")] for row in range(70)]
    tables = latex(Table("long", "long", [], ["Method", "mIoU"], [rows], ["A note."] * 6))
    typeset(tables, r"\usepackage{booktabs,adjustbox}", tmp_path)


def typeset(tables: str, needs: str, tmp_path: Path) -> None:
    """A paper of these tables alone, in which all fit on their pages."""
    paper = tmp_path / "paper.tex"
    paper.write_text(f"\\documentclass{{article}}\n{needs}\n\\begin{{document}}\n{tables}\\end{{document}}\n", "utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", paper.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert not re.search("Overfull|Float too large", done.stdout)
    assert (tmp_path / "paper.pdf").stat().st_size
