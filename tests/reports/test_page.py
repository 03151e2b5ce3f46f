"""The report in a real browser: every button and key, at the widths of a laptop and a telephone."""

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page
from rich.console import Console
from tiny_runs import Runs

from suture.reports.report import write_report

Open = Callable[..., None]
PAINTED = """(panels, number) => {
  const canvas = panels.querySelectorAll("canvas")[number];
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  return copy.getImageData(0, 0, canvas.width, canvas.height).data.reduce((sum, value) => sum + value, 0);
}"""
CONTROLS = "nav a, button, summary, .skip"
LOW_CONTRAST = """() => {
  const pixel = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const parts = (color) => {
    pixel.clearRect(0, 0, 1, 1);
    pixel.fillStyle = color;
    pixel.fillRect(0, 0, 1, 1);
    return [...pixel.getImageData(0, 0, 1, 1).data].map((part) => part / 255);
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
  const ground = (element) => {
    const own = parts(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own : over(own, ground(element.parentElement));
  };
  const linear = (part) => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => .2126 * linear(r) + .7152 * linear(g) + .0722 * linear(b);
  const contrast = (element) => {
    const { color, fill } = getComputedStyle(element), below = ground(element);
    const text = over(parts(element.closest("svg") ? fill : color), below);
    const [dark, light] = [text, below].map(luminance).sort((a, b) => a - b);
    return (light + .05) / (dark + .05);
  };
  const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  return [...document.querySelectorAll("body *")]
    .filter((element) => hasText(element) && element.checkVisibility() && !element.closest("script, option"))
    .filter((element) => contrast(element) < 4.5)
    .map((element) => `${element.closest("[id]").id}: ${element.textContent.trim()} ${contrast(element).toFixed(2)}`);
}"""
"""Texts with less contrast than the Web's guidelines (WCAG, AA) ask of small ones."""


def show(page: Page, report: Path, width: int = 1280) -> None:
    """Open a report and check that every image loads and nothing is wider than the window."""
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(report.as_uri())
    missing = "() => [...document.images].filter((image) => !image.naturalWidth).map((image) => image.alt)"
    assert page.evaluate(missing) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def painted(page: Page, number: int, panels: str = ".viewer .panels") -> int:
    """Sum of what is painted over a panel: 0 is the photo, 1 the truth, then the runs."""
    total: int = page.locator(panels).first.evaluate(PAINTED, number)
    return total


def all_values(page: Page, selector: str, value: str) -> list[Any]:
    """JavaScript value of each element."""
    values: list[Any] = page.locator(selector).evaluate_all(f"(found) => found.map((one) => {value})")
    return values


def test_black_class_is_not_painted(page: Page, both: Path) -> None:
    show(page, both)
    opacities = page.evaluate("""() => {
        palette = [[0, 0, 0], [0, 0, 200]];
        const ids = new Uint8Array(25), canvas = document.createElement("canvas");
        for (const row of [1, 2, 3]) ids.fill(1, 5 * row + 1, 5 * row + 4);
        paintMask(canvas, { ids, truth: null, width: 5, height: 5 }, "classes", 40);
        return [...canvas.getContext("2d").getImageData(0, 0, 5, 5).data].filter((_, at) => at % 4 === 3);
    }""")
    outline = [0, 255, 255, 255, 0]
    assert opacities == [*[0] * 5, *outline, 0, 255, 102, 255, 0, *outline, *[0] * 5]


def test_viewer_shows_every_frame_in_every_mode(page: Page, both: Path) -> None:
    show(page, both)
    viewer = page.locator(".viewer").first
    count, caption = viewer.locator(".count"), viewer.locator(".caption")
    frames = int(count.inner_text().split()[-1])
    caption.click()
    captions = set()
    for _ in range(frames):
        captions.add(caption.inner_text())
        assert painted(page, 0) == 0
        assert painted(page, 1) > 0
        page.keyboard.press("ArrowRight")
    assert len(captions) == frames
    page.keyboard.press("ArrowLeft")
    assert count.inner_text() == f"{frames} of {frames}"

    whole = painted(page, 1)
    page.keyboard.press("o")
    assert 0 < painted(page, 1) < whole
    page.keyboard.press("p")
    assert painted(page, 1) == 0
    viewer.locator("[data-mode=errors]").click()
    assert painted(page, 2) > 0
    viewer.locator("[data-mode=classes]").click()
    viewer.locator(".strength").fill("0")
    assert 0 < painted(page, 1) < whole, "outlines stay"
    viewer.locator(".strip button").nth(1).click()
    assert count.inner_text().startswith("2 of")
    viewer.locator(".next").click()
    viewer.locator(".previous").click()
    viewer.locator(".panels .picture").nth(1).hover()
    assert "truth: " in viewer.locator(".readout").inner_text()


def test_grid_of_frames(page: Page, both: Path) -> None:
    show(page, both)
    grid, rows = page.locator(".grid-of"), ".grid-of .rows"
    for group, frames in (("worst", 3), ("best", 3), ("median", 3), ("evenly", 4)):
        grid.locator(f"[data-group={group}]").click()
        assert page.locator(f"{rows} figure").count() == 4 * frames
        assert grid.locator("[data-group][aria-pressed=true]").count() == 1
        assert painted(page, 0, rows) == 0
        assert painted(page, 1, rows) > 0
    grid.locator("[data-mode=errors]").click()
    assert "none" not in all_values(page, ".grid-of .prediction img", "getComputedStyle(one).filter")
    grid.locator("[data-mode=photo]").click()
    assert painted(page, 1, rows) == 0
    page.keyboard.press("c")
    assert painted(page, 1, rows) > 0, "keys work on what is in focus"


def test_clips_play(page: Page, both: Path) -> None:
    show(page, both)
    for place in range(page.locator("video").count()):
        time, duration = (
            page.locator("video")
            .nth(place)
            .evaluate("""async (video) => {
            await video.play();
            await new Promise((resolve) => video.addEventListener('timeupdate', () => video.currentTime && resolve()));
            video.pause();
            return [video.currentTime, video.duration];
        }""")
        )
        assert time > 0
        assert duration == pytest.approx(14 / 5, abs=0.2)


@pytest.mark.parametrize(
    ("section", "keys"),
    [(name, ("val", "completion", "test")) for name in ("classes", "videos", "confusion")]
    + [("curves", ("lr", "images_per_second", "loss"))],
)
def test_tabs(page: Page, both: Path, section: str, keys: tuple[str, ...]) -> None:
    show(page, both)
    shown = f".panel[id^={section}-]:not([hidden])"
    for key in keys:
        page.locator(f"[aria-controls={section}-{key}]").click()
        assert all_values(page, shown, "one.id") == [f"{section}-{key}"]
    page.keyboard.press("ArrowRight")
    assert all_values(page, shown, "one.id") == [f"{section}-{keys[0]}"]
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.getAttribute('aria-controls')") == f"{section}-{keys[-1]}"


def test_classes_of_embeddings_can_be_hidden(page: Page, both: Path) -> None:
    show(page, both)
    buttons, hidden = page.locator(".toggles button"), page.locator(".cloud.gone")
    buttons.nth(1).click()
    assert hidden.count() == 4, "in two charts of two runs"
    buttons.nth(1).click()
    assert hidden.count() == 0
    for expected in (4 * (buttons.count() - 1), 0):
        buttons.first.click(modifiers=["Shift"])
        assert hidden.count() == expected


def test_long_class_names_leave_room(page: Page, runs: Runs, tmp_path: Path, console: Console) -> None:
    run = shutil.copytree(runs.supervised, tmp_path / "run")
    name = "oberflächliche Faszie der Bauchwand, 浅筋膜 & <links>".ljust(60, "x")
    for file in (run / "data.json", run / "metrics.json"):
        file.write_text(file.read_text().replace('"liver"', f'"{name}"'))
    show(page, write_report([run], tmp_path / "report.html", frames=False, console=console), width := 390)
    for section in ("classes", "confusion"):
        head = page.locator(f"#{section}-test tbody th").filter(has_text=name)
        assert head.evaluate("(one) => one.getBoundingClientRect().width") < 0.55 * width
        assert head.evaluate("(one) => one.nextElementSibling.getBoundingClientRect().right") < width
    assert max(all_values(page, "#confusion-test .up", "one.getBoundingClientRect().height")) < 220


def test_every_control_can_be_used(page: Page, both: Path) -> None:
    show(page, both)
    assert page.locator(CONTROLS).count() > 60
    all_values(page, CONTROLS, "one.click()")
    for value in ("0", "100"):
        all_values(page, "input", f"(one.value = {value}, one.dispatchEvent(new Event('input')))")
    for value in ("safe", "dataset"):
        page.locator("#palette").select_option(value)


def test_keyboard_reaches_everything(page: Page, both: Path) -> None:
    show(page, both)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["x"] >= 0, "seen while it is in focus"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#scores"
    reached = set()
    for _ in range(page.locator("a, button, input, select, summary, video, [tabindex]").count()):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.closest('section, nav, header')?.id ?? ''"))
    assert reached >= {"classes", "predictions", "comparison", "footage", "embeddings", "training", "settings"}
    current = "viewers.find((one) => one.element === document.activeElement).current"
    page.locator("[data-viewer=next]").focus()
    before = page.evaluate(current)
    page.keyboard.press("ArrowRight")
    assert page.evaluate(current) == before + 1


def test_screen_reader_finds_headings_and_names(page: Page, both: Path) -> None:
    show(page, both)
    levels = all_values(page, "h1, h2, h3, h4", "Number(one.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for selector in (
        "th:not([scope])",
        "h1:empty, h2:empty, h3:empty",
        "img:not([alt]), svg:not([aria-label], [aria-hidden]), video:not([aria-label])",
        "[role=group]:not([aria-label]), [role=tablist]:not([aria-label])",
    ):
        assert all_values(page, selector, "one.outerHTML") == []
    assert all(all_values(page, "button", "one.getAttribute('aria-label') ?? one.textContent.trim()"))
    label = "document.getElementById(one.getAttribute('aria-labelledby')).textContent"
    panels = all_values(page, ".panel", f"[one.role, one.dataset.title, {label}]")
    assert all(role == "tabpanel" and title == tab for role, title, tab in panels)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(page: Page, both: Path, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    show(page, both)
    all_values(page, "details", "one.open = true")
    all_values(page, ".panel", "one.hidden = false")
    page.locator(".toggles button").first.click()
    assert page.evaluate(LOW_CONTRAST) == []


def test_printed_page_is_light_and_whole(page: Page, both: Path) -> None:
    page.emulate_media(media="print", color_scheme="dark")
    show(page, both, width=718)  # a sheet of A4 between its margins
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert all(all_values(page, ".panel", "one.checkVisibility()"))
    assert not any(all_values(page, "nav, .tabs, .controls, .strip, .keys", "one.checkVisibility()"))
    title = "getComputedStyle(document.getElementById('classes-val'), '::before').content"
    assert page.evaluate(title) == '"new videos (validation)"'
    assert set(all_values(page, "figure, tr, .viewer, .clouds", "getComputedStyle(one).breakInside")) == {"avoid"}


def test_choices_of_theme_and_colours_are_remembered(page: Page, both: Path) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="dark")
    show(page, both)
    dark = page.evaluate(background)
    page.locator("#theme").click()
    light = page.evaluate(background)
    assert (dark, light) == ("rgb(21, 24, 27)", "rgb(255, 255, 255)")
    swatch = "getComputedStyle(document.querySelector('#classes .swatch')).backgroundColor"
    before = page.evaluate(swatch)
    page.locator("#palette").select_option("safe")
    assert page.evaluate(swatch) != before
    show(page, both)
    assert page.evaluate(background) == light
    assert page.evaluate(swatch) != before


@pytest.mark.parametrize("width", [1280, 390])
def test_everything_fits_the_window(page: Page, both: Path, width: int) -> None:
    show(page, both, width)
    all_values(page, "details", "one.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not any(all_values(page, ".strip, .strip button", "one.scrollWidth > one.clientWidth"))
    assert min(all_values(page, ".panels figure", "one.clientWidth")) > 100, "pictures that show something"


def test_run_without_scores(page: Page, runs: Runs, tmp_path: Path, console: Console) -> None:
    show(page, write_report([runs.unmasked], tmp_path / "report.html", console=console))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("e")
    assert page.locator(".viewer").count() == 3
    assert page.locator("#footage .area").count() > 0
    assert painted(page, 1) > 0


def test_tables_of_four_runs_fit_into_1280_pixels(
    page: Page, runs: Runs, tmp_path: Path, copy_run: Callable[..., Path], console: Console
) -> None:
    names = ("supervised", "pgvcl", "stitch", "uamt")
    sources = (runs.supervised, runs.pgvcl) * 2
    folders = [copy_run(run, f"videos-{name}-0") for run, name in zip(sources, names, strict=True)]
    report = write_report(folders, tmp_path / "report.html", frames=False, console=console)
    show(page, report, 1280 - 15)  # with a scroll bar
    assert page.locator("#confusion-test table").count() == 4
    for place in range(3):
        all_values(page, ".tabs", f"one.children[{place}]?.click()")
        overflowing = "one.scrollWidth > one.clientWidth ? one.firstElementChild.className : ''"
        assert not any(all_values(page, ".scroll", overflowing))
    show(page, report, 390)
    boxes = all_values(page, "#confusion-test .scroll", "one.scrollWidth > one.clientWidth")
    assert boxes == [True] * 4, "on a telephone each moves in its own box"
    moved = page.locator("#confusion-test .scroll").first.evaluate("""(box) => {
        const cells = ["tbody th", "tbody td"].map((one) => box.querySelector(one));
        const left = () => cells.map((one) => one.getBoundingClientRect().x);
        const [before, after] = [left(), (box.scrollTo({ left: 40, behavior: "instant" }), left())];
        return after.map((x, place) => x - before[place]);
    }""")
    assert moved == [0, -40], "the names of the rows stay"
