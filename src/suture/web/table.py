"""Tables in the forms that people read: Markdown, HTML, LaTeX and the terminal."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from markupsafe import Markup
from rich.table import Table as TerminalTable
from rich.text import Text

from suture.web.page import templates

_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "→": r"$\to$",
    "–": "--",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "§": r"\S{}",
    "¶": r"\P{}",
    "‖": r"$\Vert$",
}


@dataclass(frozen=True)
class TableCell:
    """Content of one cell. HTML escapes the text, unless it is `Markup`."""

    text: str
    bold: bool = False
    mark: str = ""
    """Footnote marks, with commas between several."""

    def to_markdown(self) -> str:
        text = escape_markdown(self.text)
        return (f"**{text}**" if self.bold else text) + self.mark

    def to_html(self) -> Markup:
        text = Markup("<b>{}</b>" if self.bold else "{}").format(self.text)
        return text + (Markup("<sup>{}</sup>").format(self.mark) if self.mark else "")

    def to_latex(self) -> str:
        text = rf"\textbf{{{_latex(self.text)}}}" if self.bold else _latex(self.text)
        return text + (rf"\textsuperscript{{{_latex(self.mark)}}}" if self.mark else "")


@dataclass(frozen=True)
class Table:
    """Columns, groups of rows with rules between them, and notes below.

    >>> print(Table.of_text(["run", "mIoU"], [["a", "61.2"], ["b", "58.0"]]).to_markdown())
    | run | mIoU |
    | --- | ---: |
    | a | 61.2 |
    | b | 58.0 |
    """

    columns: Sequence[str]
    groups: Sequence[Sequence[Sequence[TableCell]]]
    title: str = ""
    label: str = ""
    """Short and unique, for references."""
    heads: Sequence[tuple[str, int]] = ()
    """Titles over several columns, each with the number of columns below it."""
    notes: Sequence[str] = ()

    @classmethod
    def of_text(cls, columns: Sequence[str], *groups: Sequence[Sequence[str]], **options: Any) -> "Table":
        """Make a table of plain text, with further fields by name."""
        return cls(columns, [[[TableCell(text) for text in row] for row in rows] for rows in groups], **options)

    @cached_property
    def is_number(self) -> list[bool]:
        """Columns with numbers, or with dashes only, which are aligned to the right."""
        rows = [[cell.text for cell in row] for group in self.groups for row in group]
        columns = list(zip(*rows, strict=True)) or [()] * len(self.columns)
        return [any(re.match(r"[+−]?\d", text) for text in column) or set(column) == {"–"} for column in columns]

    @property
    def full_columns(self) -> list[tuple[str, str]]:
        """Each column's title with the title above it."""
        heads = [head for head, span in self.heads for _ in range(span)] or [""] * len(self.columns)
        return list(zip(heads, self.columns, strict=True))

    def to_markdown(self) -> str:
        """Write the table for Markdown; titles above columns become part of the columns' titles."""
        lines = [f"### {escape_markdown(self.title)}", ""] if self.title else []
        titles = [escape_markdown(" ".join(filter(None, both))) for both in self.full_columns]
        lines += [_row(titles), _row(["---:" if number else "---" for number in self.is_number])]
        lines += [_row([cell.to_markdown() for cell in row]) for group in self.groups for row in group]
        if self.notes:
            lines += ["", *(f"- {escape_markdown(note)}" for note in self.notes)]
        return "\n".join(lines)

    def to_html(self) -> Markup:
        """Write the table for a page with the shared theme."""
        return Markup(templates().get_template("table.html").render(table=self))

    def to_latex(self) -> str:
        """Write a `table*` for the packages booktabs and adjustbox, at most as large as a page."""
        lines = [r"\begin{table*}", r"\centering", rf"\caption{{{_latex(self.title)}}}"]
        lines += [rf"\label{{tab:{re.sub('[^A-Za-z0-9-]+', '-', self.label)}}}"]
        alignment = "".join("r" if number else "l" for number in self.is_number)
        # Most classes leave no space under a caption that stands above.
        lines += [r"\smallskip", r"\begin{adjustbox}{max width=\textwidth, max totalheight=0.8\textheight}"]
        lines += [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule"]
        if self.heads:
            heads, rules, first = [], "", 1
            for head, span in self.heads:
                heads.append(rf"\multicolumn{{{span}}}{{c}}{{{_latex(head)}}}")
                rules += rf"\cmidrule(lr){{{first}-{first + span - 1}}}" if head else ""
                first += span
            lines += [_latex_row(heads), rules]
        lines.append(_latex_row([_latex(title) for title in self.columns]))
        for group in self.groups:
            lines += [r"\midrule", *(_latex_row([cell.to_latex() for cell in row]) for row in group)]
        lines += [r"\bottomrule", r"\end{tabular}", r"\end{adjustbox}", r"\par\medskip"]
        lines += [rf"{{\footnotesize\raggedright {_latex(note)}\par}}" for note in self.notes]
        return "\n".join([*lines, r"\end{table*}"])

    def to_terminal(self) -> TerminalTable:
        """Make a table for a Rich console, without notes; long cells are folded."""
        table = TerminalTable(title=self.title or None, title_justify="left")
        for (head, column), number in zip(self.full_columns, self.is_number, strict=True):
            name = f"{head}\n{column}" if head else column
            table.add_column(name, justify="right" if number else "left", overflow="fold")
        for group in self.groups:
            for row in group:
                cells = [Text(f"{cell.text}{cell.mark}", "bold" if cell.bold else "") for cell in row]
                table.add_row(*cells, end_section=row is group[-1])
        return table


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape_markdown(text: str) -> str:
    """Escape what Markdown or HTML would take for markup.

    >>> print(escape_markdown("<script> a_b [x](y)"))
    \\<script> a\\_b [x\\](y)
    """
    return re.sub(r"([\\|*_<`]|\](?=\())", r"\\\1", " ".join(text.splitlines()))


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
