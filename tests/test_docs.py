"""The pages' links lead somewhere, their commands print what they show and leave nothing of it in the repository."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from suture.cli import main
from suture.data.video_index import MASK_FOLDERS

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_formulas_are_fenced(page: Path) -> None:
    """As code by indentation alone, two lines of one had been wrapped into a sentence."""
    without_blocks = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert not re.findall(r"^ {4}\S.*", without_blocks, re.MULTILINE)


def test_every_page_is_in_the_index() -> None:
    named = set(re.findall(r"\]\(([\w-]+\.md)\)", text_of(ROOT / "docs/index.md")))
    assert named == {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}


def test_the_page_of_labelling_shows_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its story once more, up to the training; the masks have no names of classes, and the page says some."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/labelling.md").read_text(encoding="utf-8").partition("## Train")[0]
    printed: list[str] = []

    def suture(words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["suture", *words.split()])
        with pytest.raises(SystemExit):
            main()
        said = capsys.readouterr().out
        for number, name in {7: "thread", 8: "needle", 9: "gauze"}.items():
            said = said.replace(f"class_{number}", name)
        printed.extend(said.split())

    def mend(before: str, after: str) -> None:
        file = Path("videos/dataset.yaml")
        assert before in file.read_text()
        file.write_text(file.read_text().replace(before, after))

    suture("synthetic truth --cases 5 --frames 60 --size 256x192")
    shutil.copytree("truth/videos", "videos")
    suture("check videos")
    Path("videos/exclude.csv").write_text("video,first,last,reason\ncase03,34,40,out of body\n")
    suture("check videos --write")
    mend("case01b]  # guess", "case01b]")
    suture("select videos --budget 24 -o label")
    Path("videos/masks").mkdir()
    for frame in Path("label").glob("*.png"):
        shutil.copy(Path("truth/masks") / frame.name, "videos/masks")
    suture("check videos")
    suture("check videos --write --force")
    mend("# unpainted: background", "unpainted: background")
    suture("check videos")
    shown = "".join(re.findall(r"```console\n(.*?)```", page, re.DOTALL)).splitlines()
    shown = [" ".join(line.split()) for line in shown if not line.startswith(("$ suture ", "…"))]
    assert [line for line in shown if line not in " ".join(printed)] == []


def test_the_folders_that_predict_does_not_enter_are_all_named() -> None:
    listed = ", ".join(f"`{name}`" for name in MASK_FOLDERS[:-1]) + f" or `{MASK_FOLDERS[-1]}`"
    assert f"Folders that are called {listed}" in (ROOT / "docs/predict.md").read_text(encoding="utf-8").replace(
        "\n", " "
    )


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
