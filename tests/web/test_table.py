"""Tables as Markdown, HTML, LaTeX and for the terminal."""

import io

import pytest
from markupsafe import Markup
from rich.console import Console

from suture.web.table import Table, TableCell


@pytest.fixture
def table() -> Table:
    rows = [[TableCell("a_b", mark="†"), TableCell("53.0 ± 1.0", bold=True), TableCell("<x|y>")]]
    return Table(["Method", "mIoU", "Remark"], [rows], "Scores (%)", "scores-d", [("", 1), ("Test", 2)], ["† a < b"])


def test_markdown_escapes_text_and_aligns_numbers(table: Table) -> None:
    assert table.to_markdown().splitlines() == [
        "### Scores (%)",
        "",
        "| Method | Test mIoU | Test Remark |",
        "| --- | ---: | --- |",
        r"| a\_b† | **53.0 ± 1.0** | \<x\|y> |",
        "",
        r"- † a \< b",
    ]


def test_html_escapes_text_but_takes_markup(table: Table) -> None:
    page = table.to_html()
    assert '<h2 id="scores-d">Scores (%)</h2>' in page
    assert '<th scope="colgroup" colspan="2"><span>Test</span></th>' in page
    assert '<th scope="row">a_b<sup>†</sup></th><td class="right"><b>53.0 ± 1.0</b></td><td>&lt;x|y&gt;</td>' in page
    assert "<li>† a &lt; b</li>" in page
    assert "<td><i>x</i></td>" in Table(["a", "b"], [[[TableCell("y"), TableCell(Markup("<i>x</i>"))]]]).to_html()


def test_latex_has_commands_for_special_characters(table: Table) -> None:
    lines = table.to_latex().splitlines()
    assert r"\cmidrule(lr){2-3}" in lines
    assert (
        r"a\_b\textsuperscript{$\dagger$} & \textbf{53.0 $\pm$ 1.0} & \textless{}x\textbar{}y\textgreater{} \\" in lines
    )
    assert "".join(lines).isascii()


def test_terminal_shows_every_cell(table: Table) -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(table.to_terminal())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(part in text for part in ("Scores (%)", "a_b†", "53.0 ± 1.0", "<x|y>"))
