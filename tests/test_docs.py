"""Every link between the pages leads somewhere, and what their commands leave behind stays out of the repository."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")


def text_of(page: Path) -> str:
    """Without code, where brackets and # mean something else."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Of its headings, as code hosts name them."""
    without_blocks = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", without_blocks, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for path, anchor in LINK.findall(text_of(page)):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            lost.append(f"{path}#{anchor}" if anchor else path)
    assert not lost


def test_every_page_is_in_the_index() -> None:
    named = set(re.findall(r"\]\(([\w-]+\.md)\)", text_of(ROOT / "docs/index.md")))
    assert named == {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_clone_commits_nothing_of_a_patient_after_the_commands_of_the_readme(tmp_path: Path) -> None:
    shutil.copy(ROOT / ".gitignore", tmp_path)
    left = ["videos/case01.mp4", "videos/dataset.yaml", "label/case01__frame_000000.png", "new.mp4", "model.onnx"]
    left += ["runs/videos-stitch-0/report.html", "predictions/new/overlay.mp4", "MODEL_CARD.md", "demo/data/x.mp4"]
    for name in left:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    seen = subprocess.run([*git, "status", "--porcelain", "-uall"], capture_output=True, text=True, check=True).stdout
    assert seen.splitlines() == ["?? .gitignore"]
