"""Tables as Markdown, LaTeX and one HTML page."""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template
from urllib.parse import quote

from rich.table import Table as Listing
from rich.text import Text

from suture.comparison.tables import Cell, Table

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


def markdown(table: Table) -> str:
    """A table with its notes; titles over columns become part of the columns' titles."""
    lines = [f"### {table.title}", ""]
    titles = [" ".join(part for part in (head, column) if part) for head, column in _with_heads(table)]
    lines.append(_markdown_row(titles))
    lines.append(_markdown_row(["---:" if right else "---" for right in _right_aligned(table)]))
    for group in table.groups:
        lines += [_markdown_row([_markdown_cell(cell) for cell in row]) for row in group]
    return "\n".join([*lines, "", *(f"- {_markdown_text(note)}" for note in table.notes), ""])


def latex(table: Table) -> str:
    """A `table*` for the packages booktabs and adjustbox that fits a page with its notes; groups of rows are ruled off.

    Most classes have captions below and leave no space under one that stands above.
    """
    lines = [r"\begin{table*}", r"\centering", rf"\caption{{{_latex_text(table.title)}}}"]
    lines += [rf"\label{{tab:{re.sub('[^A-Za-z0-9-]+', '-', table.label)}}}"]
    alignment = "".join("r" if right else "l" for right in _right_aligned(table))
    lines += [r"\smallskip", r"\begin{adjustbox}{max width=\textwidth, max totalheight=0.8\textheight}"]
    lines += [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule"]
    if table.heads:
        lines.append(_latex_row([rf"\multicolumn{{{span}}}{{c}}{{{_latex_text(head)}}}" for head, span in table.heads]))
        lines.append("".join(rf"\cmidrule(lr){{{first}-{last}}}" for first, last in _spans(table)))
    lines.append(_latex_row([_latex_text(title) for title in table.columns]))
    for group in table.groups:
        lines.append(r"\midrule")
        lines += [_latex_row([_latex_cell(cell) for cell in row]) for row in group]
    lines += [r"\bottomrule", r"\end{tabular}", r"\end{adjustbox}", r"\par\medskip"]
    lines += [rf"{{\footnotesize\raggedright {_latex_text(note)}\par}}" for note in table.notes]
    return "\n".join([*lines, r"\end{table*}", ""])


def terminal(table: Table) -> Listing:
    """A table for the terminal, without its notes; nothing in it is cut off."""
    listing = Listing(title=table.title, title_justify="left")
    for (head, column), right in zip(_with_heads(table), _right_aligned(table), strict=True):
        name = f"{head}\n{column}" if head else column
        listing.add_column(name, justify="right" if right else "left", overflow="fold")
    for group in table.groups:
        for row in group:
            cells = [Text(f"{cell.text}{cell.mark}", "bold" if cell.bold else "") for cell in row]
            listing.add_row(*cells, end_section=row is group[-1])
    return listing


@dataclass(frozen=True)
class Section:
    """A part of the page: tables, and PNG pictures by what they show."""

    title: str
    tables: Sequence[Table]
    pictures: Mapping[str, bytes]


def page(title: str, remarks: Sequence[str], sections: Sequence[Section]) -> str:
    """One page that needs nothing else."""
    parts = [f'<p class="remark">{escape(remark)}</p>' for remark in remarks]
    links = ""
    for number, section in enumerate(sections, 1):
        places = {f"section-{number}": section.title}
        places |= {table.label: table.title.removeprefix(f"{section.title}: ") for table in section.tables}
        linked = (f'<a href="#{quote(place)}">{escape(name)}</a>' for place, name in places.items())
        links += f'<nav aria-label="{escape(section.title)}">{"".join(linked)}</nav>'
        parts.append(f'<section id="section-{number}">')
        parts += [_figure(said, png) for said, png in section.pictures.items()]
        parts += [_html(table) for table in section.tables]
        parts.append("</section>")
    template = Template((files("suture.comparison") / "page.html").read_text(encoding="utf-8"))
    return template.substitute(title=escape(title), links=links, content="\n".join(parts))


def _html(table: Table) -> str:
    right = _right_aligned(table)
    # Where nothing stands over columns each has a cell of its own, as the first one stays in sight.
    heads = "".join(
        f'<th scope="colgroup" colspan="{span}"><span>{escape(head)}</span></th>' if head else "<td></td>" * span
        for head, span in table.heads
    )
    columns = "".join(
        _html_tag('th scope="col"', escape(title), r) for title, r in zip(table.columns, right, strict=True)
    )
    head = f'<tr class="heads">{heads}</tr>' * bool(heads) + f"<tr>{columns}</tr>"
    body = ""
    for group in table.groups:
        rows = ("".join(map(_html_cell, ['th scope="row"', *["td"] * (len(row) - 1)], row, right)) for row in group)
        body += f"<tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody>"
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    return (
        f'<h2 id="{escape(table.label)}">{escape(table.title)}</h2>{_scrolling(table.title)}<table>'
        f"<thead>{head}</thead>{body}</table></div><ul>{notes}</ul>"
    )


def _html_cell(tag: str, cell: Cell, right: bool) -> str:
    said = escape(cell.text)
    if not right and ", " in said:
        said = ", ".join(f"<span>{part}</span>" for part in said.split(", "))
    said = f"<b>{said}</b>" if cell.bold else said
    return _html_tag(tag, said + (f"<sup>{cell.mark}</sup>" if cell.mark else ""), right)


def _html_tag(tag: str, content: str, right: bool) -> str:
    return f"<{tag}{' class=right' if right else ''}>{content}</{tag.split()[0]}>"


def _scrolling(label: str) -> str:
    """The beginning of a box that keys can move sideways, where what is in it is wider than the page."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">'


def _figure(said: str, png: bytes) -> str:
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    image = f'{_scrolling("picture")}<img src="{source}" alt="{escape(said)}"></div>'
    return f"<figure>{image}<figcaption>{escape(said)}</figcaption></figure>"


def _right_aligned(table: Table) -> list[bool]:
    """Which columns hold numbers."""
    rows = [row for group in table.groups for row in group]
    return [any(re.match(r"[+−]?\d", row[place].text) for row in rows) for place in range(len(table.columns))]


def _with_heads(table: Table) -> list[tuple[str, str]]:
    """Each column's title with the title over it; titles over the first columns say nothing in one line."""
    heads = [head for head, span in table.heads for _ in range(span)] or [""] * len(table.columns)
    named = {"", "Frames used"}
    return [("" if head in named else head, column) for head, column in zip(heads, table.columns, strict=True)]


def _spans(table: Table) -> list[tuple[int, int]]:
    """First and last column below each title, counted from 1."""
    spans, first = [], 1
    for head, span in table.heads:
        if head:
            spans.append((first, first + span - 1))
        first += span
    return spans


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(cell: Cell) -> str:
    said = _markdown_text(cell.text)
    return (f"**{said}**" if cell.bold else said) + cell.mark


def _markdown_text(text: str) -> str:
    return re.sub(r"([\\|*_<`])", r"\\\1", text)


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(cell: Cell) -> str:
    said = _latex_text(cell.text)
    return (rf"\textbf{{{said}}}" if cell.bold else said) + (
        rf"\textsuperscript{{{_latex_text(cell.mark)}}}" if cell.mark else ""
    )


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
