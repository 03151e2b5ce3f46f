"""The report in a real browser: every button and key, no console message, no missing image, nothing fetched."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Page, browser
from rich.console import Console
from tiny_runs import Runs

from suture.report.report import write_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt-get install chromium)")

MISSING = "[...document.images].filter((image) => !image.complete || !image.naturalWidth).map((image) => image.alt)"
PAINTED = """(number) => {
  const canvas = document.querySelectorAll(".viewer .panels canvas")[number];
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const data = copy.getImageData(0, 0, canvas.width, canvas.height).data;
  return data.reduce((sum, value) => sum + value, 0);
}"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _no_problems(page: Page) -> Iterator[None]:
    page.problems.clear()
    page.requests.clear()
    yield
    assert page.problems == []
    assert page.run(MISSING) == []
    assert all(request.startswith(("data:", "file:")) for request in page.requests)


@pytest.fixture(scope="module")
def both(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([runs.supervised, runs.pgvcl], tmp_path_factory.mktemp("report") / "report.html")


def painted(page: Page, panel: int) -> int:
    """How much is painted over a panel of the first viewer: 0 is the photo, 1 the truth, then the runs."""
    return page.run(f"({PAINTED})({panel})")


def test_every_frame_and_way_of_painting(page: Page, both: Path) -> None:
    page.open(both)
    frames = int(page.run("document.querySelector('.count').textContent").split()[-1])
    seen = set()
    page.click(".viewer .caption")
    for _ in range(frames):
        seen.add(page.run("document.querySelector('.caption').textContent"))
        assert painted(page, 0) == 0
        assert painted(page, 1) > 0
        assert page.run(MISSING) == []
        page.press("ArrowRight")
    assert len(seen) == frames
    page.press("ArrowLeft")
    assert page.run("document.querySelector('.count').textContent") == f"{frames} of {frames}", "round the corner"

    whole = painted(page, 1)
    page.press("o")
    assert 0 < painted(page, 1) < whole
    page.press("p")
    assert painted(page, 1) == 0
    page.click(".viewer [data-mode=errors]")
    assert painted(page, 2) > 0
    page.click(".viewer [data-mode=classes]")
    page.run("document.querySelector('.strength').value = 0; viewers[0].paint()")
    assert 0 < painted(page, 1) < whole, "outlines stay"
    page.click(".viewer .strip button:nth-child(2)")
    assert page.run("document.querySelector('.count').textContent").startswith("2 of")
    page.click(".viewer .next")
    page.click(".viewer .previous")
    page.point(".viewer .panels figure:nth-child(2) .picture")
    assert "truth: " in page.run("document.querySelector('.readout').textContent")


def test_tabs(page: Page, both: Path) -> None:
    page.open(both)
    for section in ("classes", "videos", "confusion"):
        for which in ("val", "completion", "test"):
            page.click(f"[data-panel={section}-{which}]")
            shown = page.run(f"[...document.querySelectorAll('#{section} .panel:not([hidden])')].map((e) => e.id)")
            assert shown == [f"{section}-{which}"]


def test_light_and_dark_and_colours(page: Page, both: Path) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    page.open(both, dark=True)
    page.run("localStorage.clear()")
    page.open(both, dark=True)
    dark = page.run(background)
    page.click("#theme")
    light = page.run(background)
    assert dark != light
    page.open(both, dark=True)
    assert page.run(background) == light, "the choice is remembered"
    before = page.run("getComputedStyle(document.querySelector('#classes .swatch')).backgroundColor")
    page.run("paletteChoice.value = 'safe'; paletteChoice.dispatchEvent(new Event('change'))")
    assert page.run("getComputedStyle(document.querySelector('#classes .swatch')).backgroundColor") != before
    page.run("localStorage.clear()")


def test_fits_a_laptop_and_a_telephone(page: Page, both: Path) -> None:
    for width in (1280, 400):
        page.open(both, width=width)
        assert page.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("frames", [True, False])
def test_what_is_missing_breaks_nothing(page: Page, runs: Runs, tmp_path: Path, console: Console, frames: bool) -> None:
    page.open(write_report([runs.unmasked], tmp_path / "report.html", frames=frames, console=console))
    page.press("ArrowRight")
    page.press("e")
    assert page.run("document.querySelectorAll('.viewer').length") == (2 if frames else 0)
    if frames:
        assert painted(page, 1) > 0
