"""Count the project: code lines of `src`, lines of `tests`, tracked files, words of documents.

A code line holds code: no blank line, comment or docstring. Usage: `python benchmarks/size.py [REVISION]`.
"""

import ast
import io
import subprocess
import sys
import tokenize

NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def docstring_lines(source: str) -> set[int]:
    """The lines of every string that stands alone as a statement."""
    return {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def code_lines(source: str) -> int:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(source))


def main(revision: str | None = None) -> None:
    if revision:
        files = git("ls-tree", "-r", "--name-only", revision).splitlines()
    else:
        files = git("ls-files").splitlines()

    def text(name: str) -> str:
        if revision:
            return git("show", f"{revision}:{name}")
        with open(name, encoding="utf-8") as file:
            return file.read()

    source = {name: text(name) for name in files if name.startswith("src/") and name.endswith(".py")}
    tests = [text(name) for name in files if name.startswith("tests/") and name.endswith(".py")]
    documents = {name: len(text(name).split()) for name in files if name.endswith(".md")}
    pages = {name: words for name, words in documents.items() if name.startswith("docs/")}
    filled = [line for body in source.values() for line in body.splitlines() if line.strip()]
    print(f"src: {sum(map(code_lines, source.values())):,} code lines in {len(source)} files")
    print(f"src: {sum(map(len, filled)) / len(filled):.1f} characters in a line that is not blank")
    print(f"tests: {sum(len(body.splitlines()) for body in tests):,} lines in {len(tests)} files")
    print(f"tracked files: {len(files):,}")
    print(f"README.md: {documents['README.md']:,} words")
    reference = sum(words for name, words in pages.items() if name.startswith("docs/reference/"))
    print(f"docs: {sum(pages.values()):,} words, of which reference: {reference:,}")
    print(f"all documents: {sum(documents.values()):,} words")


if __name__ == "__main__":
    main(*sys.argv[1:])
