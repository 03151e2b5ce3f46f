"""The tables of README.md, docs/results.md and docs/method.md are what docs/results/pages.py makes of the runs."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suture.core.errors import UserError

ROOT = Path(__file__).parents[2]
TABLE = """<!-- {} -->
{}
<!-- end -->
"""


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs/results"))  # as where a script is started from, for its neighbours
        return runpy.run_path(str(ROOT / "docs/results/pages.py"))


@pytest.fixture
def filled(script: dict[str, Any]) -> Callable[[str, str], list[str]]:
    """The rows of a table without head, once filled."""

    def fill(mark: str, table: str) -> list[str]:
        found: str = script["page"](TABLE.format(mark, table))
        return found.splitlines()[3:-1]

    return fill


def test_the_tables_are_those_of_the_runs(script: dict[str, Any]) -> None:
    pages = [path.read_text(encoding="utf-8") for path in script["PAGES"]]
    assert [text.count("<!-- end -->") for text in pages] == [2, 13, 2]
    for text in pages:
        assert script["page"](text) == text, "run python docs/results/pages.py"


def test_cells_are_filled_by_their_row_and_column(filled: Callable[[str, str], list[str]]) -> None:
    head = "| Method | labelled | seeds | new videos, mIoU | completion, per frame | why |\n" + "| --- " * 6 + "|\n"
    rows = "| dmt | every 20th | 9 | 0 | 0 | kept |\n| **twice** | every 20th | | | | |\n| all-labels | all | | | | |"
    dmt, twice, everything = filled("vocalfolds bold", head + rows)
    score = r"(\*\*)?\d\d\.\d ± \d\.\d(\*\*)?"
    assert re.fullmatch(rf"\| dmt \| every 20th \| 5 \| {score} \| {score} \| kept \|", dmt)
    assert re.fullmatch(rf"\| \*\*twice\*\* \| every 20th \| 5 \| {score} \| {score} \|  \|", twice)
    assert re.fullmatch(r"\| all-labels \| all \| 5 \| [\d.]+ ± [\d.]+ \| – \|  \|", everything)
    for cells in zip(dmt.split("|")[4:6], twice.split("|")[4:6], strict=True):
        assert sum("**" in cell for cell in cells) == 1
        means = [float(cell.replace("**", "").split(" ± ")[0]) for cell in cells]
        assert "**" in cells[means.index(max(means))]
    (plain, _, _) = filled("vocalfolds bold twice all-labels", head + rows)
    assert "**" not in plain


def test_what_all_labels_reach_meets_every_labelling(filled: Callable[[str, str], list[str]]) -> None:
    (row,) = filled(
        "vocalfolds",
        "| Method | New videos, 19 labels | New videos, 34 labels |\n| --- | --- | --- |\n| all-labels | | |",
    )
    _, _, few, many, _ = (cell.strip() for cell in row.split("|"))
    assert few == many != "–"
    pairs = "| | labelled | new videos, mIoU |\n| --- | --- | --- |\n"
    back, forth = filled("vocalfolds", pairs + "| dmt − all-labels | both | |\n| all-labels − dmt | both | |")
    assert re.search(r"\| [+−][\d.]+ \[[+−][\d.]+, [+−][\d.]+\] \|$", back)
    assert forth.endswith("| – |"), "a pair has the labelling of the first"


HEAD = "| Method | labelled | new videos, mIoU |\n| --- | --- | --- |\n"


@pytest.mark.parametrize(
    ("mark", "table", "told"),
    [
        ("vocalfolds", HEAD + "| stich | every 20th | |", "no run of stich on sequences, every-20 labelled"),
        ("vocalfolds", HEAD + "| stitch | every 20 | |", "no run of stitch on sequences, every 20 labelled"),
        ("vocalfolds", HEAD.replace("Method", "") + "| stitch - twice | both | |", "no run of stitch - twice"),
        ("vocalfolds-patients", HEAD + "| stitch | every 20th | |", "too many values"),
        ("vocalfolds bold stich", HEAD + "| stitch | every 20th | |", "bold are to be {'stich'}"),
        (
            "vocalfolds",
            "| IoU on new videos | labelled | vocal fold |\n| --- | --- | --- |\n| stitch | every 20th | |",
            "IoU of vocal fold has no score",
        ),
    ],
)
def test_a_slip_is_no_missing_score(filled: Callable[[str, str], list[str]], mark: str, table: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        filled(mark, table)


def test_a_folder_that_is_not_there_is_told(filled: Callable[[str, str], list[str]]) -> None:
    with pytest.raises(UserError):
        filled("vocalfold", HEAD + "| stitch | every 20th | |")
