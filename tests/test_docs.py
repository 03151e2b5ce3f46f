"""Documents: links lead somewhere, generated pages are up to date, the tutorial's commands run."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
NOTES = sorted((ROOT / "research").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS, *NOTES]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")


def without_code(page: Path) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as code hosts name them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def linked(page: Path) -> set[Path]:
    return {(page.parent / path).resolve() for path, _ in LINK.findall(without_code(page)) if path}


def load(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script as a module, with its neighbours importable."""
    monkeypatch.syspath_prepend(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for path, anchor in LINK.findall(without_code(page)):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            lost.append(f"{path}#{anchor}" if anchor else path)
    assert not lost


@pytest.mark.parametrize(
    ("index", "pages"), [("docs/index.md", DOCS), ("research/README.md", NOTES)], ids=["docs", "research"]
)
def test_every_page_is_linked_from_its_index(index: str, pages: list[Path]) -> None:
    assert {page.resolve() for page in pages} - {ROOT / index} <= linked(ROOT / index)


def test_every_picture_is_shown() -> None:
    pictures = {path for path in (ROOT / "docs/images").iterdir() if path.suffix != ".py" and path.is_file()}
    assert pictures <= set().union(*map(linked, PAGES))


def test_the_reference_is_what_the_code_generates(monkeypatch: pytest.MonkeyPatch) -> None:
    generate = load(ROOT / "docs/reference/generate.py", monkeypatch)
    for name, make in generate.PAGES.items():
        text = (ROOT / "docs/reference" / name).read_text(encoding="utf-8")
        assert make() == text, f"run python docs/reference/generate.py: {name} is out of date"


def test_performance_tables_are_what_the_figures_say(monkeypatch: pytest.MonkeyPatch) -> None:
    plot = load(ROOT / "benchmarks/plot.py", monkeypatch)
    try:
        for path, text in plot.pages().items():
            assert path.read_text(encoding="utf-8") == text, "run python benchmarks/plot.py"
    finally:
        for name in ("common", "growth"):
            sys.modules.pop(name, None)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_tutorial_runs_up_to_the_training(tmp_path: Path) -> None:
    text = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8").partition("## 5. Train")[0]
    script = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    command = tmp_path / "bin/suture"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m suture "$@"\n')
    command.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", script], cwd=work, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "24 labelled" in done.stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_files_of_the_readme_commands_are_ignored_by_git(tmp_path: Path) -> None:
    shutil.copy(ROOT / ".gitignore", tmp_path)
    left = ["videos/case01.mp4", "videos/dataset.yaml", "label/case01__frame_000000.png", "new.mp4", "model.onnx"]
    left += ["runs/videos-stitch-0/report.html", "predictions/new/overlay.mp4", "MODEL_CARD.md", "demo/data/x.mp4"]
    for name in left:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    status = subprocess.run([*git, "status", "--porcelain", "-uall"], capture_output=True, text=True, check=True)
    assert status.stdout.splitlines() == ["?? .gitignore"]
