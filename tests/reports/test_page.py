"""The report in a real browser: every button and key, no console message, no missing image, nothing fetched."""

import math
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from browser import CHROMIUM, Page, browser
from rich.console import Console
from tiny_runs import Runs

from suture.core.io import read_json, write_json
from suture.data.images import read_image
from suture.reports.report import write_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt-get install chromium)")

MISSING = "[...document.images].filter((image) => !image.complete || !image.naturalWidth).map((image) => image.alt)"
PAINTED = """(selector, number) => {
  const canvas = document.querySelectorAll(selector + " canvas")[number];
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const data = copy.getImageData(0, 0, canvas.width, canvas.height).data;
  return data.reduce((sum, value) => sum + value, 0);
}"""
CONTROLS = "nav a, button, summary, .skip"
HARD_TO_READ = """(() => {
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
  const says = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  return [...document.querySelectorAll("body *")]
    .filter((element) => says(element) && element.checkVisibility() && !element.closest("script, option"))
    .filter((element) => contrast(element) < 4.5)
    .map((element) => `${element.closest("[id]").id}: ${element.textContent.trim()} ${contrast(element).toFixed(2)}`);
})()"""
"""Texts with less contrast than the Web's guidelines (WCAG, AA) ask of small ones."""


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
def both(runs: Runs, footage: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything a report can show: two runs, and a video without truth."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report([runs.supervised, runs.pgvcl], path, videos=[footage])


def painted(page: Page, panel: int, where: str = ".viewer .panels") -> int:
    """How much is painted over a panel: 0 is the photo, 1 the truth, then the runs."""
    return page.run(f"({PAINTED})('{where}', {panel})")


def test_a_black_class_is_not_painted(page: Page, both: Path) -> None:
    page.open(both)
    opacities = page.run("""(() => {
        palette = [[0, 0, 0], [0, 0, 200]];
        const ids = new Uint8Array(25), canvas = document.createElement("canvas");
        for (const row of [1, 2, 3]) ids.fill(1, 5 * row + 1, 5 * row + 4);
        paintMask(canvas, { ids, truth: null, width: 5, height: 5 }, "classes", 40);
        return [...canvas.getContext("2d").getImageData(0, 0, 5, 5).data].filter((_, at) => at % 4 === 3);
    })()""")
    outline = [0, 255, 255, 255, 0]
    assert opacities == [*[0] * 5, *outline, 0, 255, 102, 255, 0, *outline, *[0] * 5]


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


def test_confusion_of_three_runs_stands_in_one_table(page: Page, runs: Runs, tmp_path: Path, console: Console) -> None:
    """Where the screen is too narrow for it, the names of the rows stay while the rest moves."""
    third = tmp_path / "third"
    shutil.copytree(runs.supervised, third)
    metrics = read_json(third / "metrics.json")
    del metrics["val"]["confusion"]
    write_json(third / "metrics.json", metrics)
    three = [runs.supervised, runs.pgvcl, third]
    report = write_report(three, tmp_path / "three.html", frames=False, console=console)
    page.open(report)
    heads = "[...document.querySelectorAll('#confusion-{} [scope=colgroup]')].map((head) => head.textContent)"
    assert page.run(heads.format("test")) == ["supervised", "pgvcl", "third"]
    assert page.run(heads.format("val")) == ["supervised", "pgvcl"]
    assert page.run("document.querySelector('#confusion-val .remark').textContent").startswith("third has no confusion")
    page.open(report, width=600)
    moved = page.run("""(() => {
        const box = document.querySelector("#confusion-test .scroll");
        const [name, cell] = ["tbody th", "tbody td"].map((one) => box.querySelector(one));
        const left = () => [name, cell].map((one) => one.getBoundingClientRect().x);
        const [was, then] = [left(), (box.scrollTo({ left: 200, behavior: "instant" }), left())];
        return then.map((x, place) => x - was[place]);
    })()""")
    assert moved == [0, -200]


def test_grid_of_frames(page: Page, both: Path) -> None:
    page.open(both)
    rows = ".grid-of .rows"
    for group, frames in (("worst", 3), ("best", 3), ("median", 3), ("evenly", 4)):
        page.click(f".grid-of [data-group={group}]")
        assert page.run(f"document.querySelectorAll('{rows} figure').length") == 4 * frames
        assert page.run("[...document.querySelectorAll('.grid-of [data-group][aria-pressed=true]')].length") == 1
        page.run("Promise.all([...document.images].map((image) => image.decode()))")
        assert painted(page, 0, rows) == 0
        assert painted(page, 1, rows) > 0
    page.click(".grid-of [data-mode=errors]")
    assert page.run("getComputedStyle(document.querySelector('.grid-of .prediction img')).filter") != "none"
    page.click(".grid-of [data-mode=photo]")
    assert painted(page, 1, rows) == 0
    page.click(".grid-of [data-mode=photo]")
    page.press("c")
    assert painted(page, 1, rows) > 0, "keys work on what is in focus"


@pytest.mark.parametrize("width", [1280, 400])
def test_every_thumbnail_is_in_sight_with_all_its_reasons(page: Page, both: Path, width: int) -> None:
    page.open(both, width=width)
    for selector in (".strip", ".strip button"):
        wide = f"[...document.querySelectorAll('{selector}')].filter((one) => one.scrollWidth > one.clientWidth).length"
        assert page.run(wide) == 0
    said, reasons = (
        page.run(f"viewers[0].{of}")
        for of in ("thumbnails.map((one) => one.textContent)", "items.map((one) => one.groups.join(', '))")
    )
    assert said == reasons
    assert any(", " in one for one in said)


def test_the_video_plays(page: Page, both: Path) -> None:
    page.open(both)
    played = page.run(
        "(async () => { const video = document.querySelector('video'); video.scrollIntoView(); await video.play();"
        " await new Promise((resolve) => video.addEventListener('timeupdate', () => video.currentTime && resolve()));"
        " video.pause(); return [video.currentTime, video.videoWidth, video.duration]; })()"
    )
    assert played[0] > 0
    assert played[1] > 100
    assert played[2] == pytest.approx(4, abs=0.1)
    poster = page.run(
        "(async () => { const video = document.querySelector('video'), image = new Image(); image.src = video.poster;"
        " await image.decode();"
        " return [image.naturalWidth, image.naturalHeight, video.videoWidth, video.videoHeight]; })()"
    )
    assert poster[:2] == poster[2:], "what is seen until it plays"


def test_tabs(page: Page, both: Path) -> None:
    page.open(both)
    for section, whiches in (
        ("classes", ("val", "completion", "test")),
        ("videos", ("val", "completion", "test")),
        ("confusion", ("val", "completion", "test")),
        ("curves", ("lr", "images_per_second", "loss")),
    ):
        shown = f"[...document.querySelectorAll('.panel[id^={section}-]:not([hidden])')].map((one) => one.id)"
        for which in whiches:
            page.click(f"[aria-controls={section}-{which}]")
            assert page.run(shown) == [f"{section}-{which}"]
        page.press("ArrowRight")
        assert page.run(shown) == [f"{section}-{whiches[0]}"], "arrow keys go from tab to tab"
        page.press("ArrowLeft")
        assert page.run("document.activeElement.getAttribute('aria-controls')") == f"{section}-{whiches[-1]}"


def test_classes_of_embeddings_can_be_hidden(page: Page, both: Path) -> None:
    page.open(both)
    hidden = "[...document.querySelectorAll('.cloud')].filter((e) => getComputedStyle(e).display === 'none').length"
    classes = page.run("document.querySelectorAll('.toggles button').length")
    page.click(".toggles button:nth-child(2)")
    assert page.run(hidden) == 4, "in two charts of two runs"
    page.click(".toggles button:nth-child(2)")
    assert page.run(hidden) == 0
    alone = "document.querySelectorAll('.toggles button')[0].dispatchEvent(new MouseEvent('click', {shiftKey: true}))"
    page.run(alone)
    assert page.run(hidden) == 4 * (classes - 1)
    page.run(alone)
    assert page.run(hidden) == 0


def test_embeddings_of_two_runs_stand_beside_each_other(page: Page, both: Path) -> None:
    page.open(both, width=1280)
    boxes = (
        "[...document.querySelectorAll('.clouds .scatter')].map((one) => one.getBoundingClientRect()).map(({}) => {})"
    )
    assert len(set(page.run(boxes.format("box", "Math.round(box.bottom)")))) == 1
    assert max(page.run(boxes.format("box", "box.height"))) < 350
    page.open(both, width=400)
    assert len(set(page.run(boxes.format("box", "Math.round(box.bottom)")))) == 2


@pytest.mark.parametrize(("count", "rows"), [(2, 1), (3, 2)])
def test_embeddings_of_several_runs_leave_no_hole(
    page: Page, runs: Runs, tmp_path: Path, console: Console, count: int, rows: int
) -> None:
    folders = [shutil.copytree(runs.supervised, tmp_path / f"run-{number}") for number in range(count)]
    page.open(write_report(folders, tmp_path / "report.html", frames=False, console=console), width=1280)
    tops = page.run(
        "[...document.querySelectorAll('.scatter')].map((one) => Math.round(one.getBoundingClientRect().y))"
    )
    assert sorted(tops.count(top) for top in set(tops)) == [2 * count // rows] * rows


@pytest.mark.parametrize("width", [1280, 400])
def test_long_names_of_classes_leave_room(page: Page, runs: Runs, tmp_path: Path, console: Console, width: int) -> None:
    run = shutil.copytree(runs.supervised, tmp_path / "run")
    name = "oberflächliche Faszie der Bauchwand, 浅筋膜 & <links>".ljust(60, "x")
    for file in (run / "data.json", run / "metrics.json"):
        file.write_text(file.read_text().replace('"liver"', f'"{name}"'))
    page.open(write_report([run], tmp_path / "report.html", frames=False, console=console), width=width)
    assert page.run("document.documentElement.scrollWidth") <= width
    for section in ("classes", "confusion"):
        found = (
            f"[...document.querySelectorAll('#{section}-test tbody th')].find((one) => one.textContent === `{name}`)"
        )
        assert page.run(f"{found}.getBoundingClientRect().width") < 0.55 * width
        assert page.run(f"{found}.nextElementSibling.getBoundingClientRect().right") < width, "its first number is seen"
    head = "[...document.querySelectorAll('#confusion-test .up')].map((one) => one.getBoundingClientRect().height)"
    assert max(page.run(head)) < 220


def test_every_control_can_be_used(page: Page, both: Path) -> None:
    page.open(both)
    count = page.run(f"document.querySelectorAll('{CONTROLS}').length")
    assert count > 60
    for number in range(count):
        page.run(f"document.querySelectorAll('{CONTROLS}')[{number}].click()")
    page.run(
        "for (const range of document.querySelectorAll('input')) for (const value of [0, 100, 50]) {"
        " range.value = value; range.dispatchEvent(new Event('input')); }"
    )
    page.run(
        "for (const value of ['safe', 'dataset']) {"
        " paletteChoice.value = value; paletteChoice.dispatchEvent(new Event('change')); }"
    )
    page.run("localStorage.clear()")


def test_the_keyboard_reaches_everything(page: Page, both: Path) -> None:
    page.open(both)
    page.press("Tab")
    assert page.run("document.activeElement.className") == "skip"
    assert page.run("document.activeElement.getBoundingClientRect().left") >= 0, "seen while it is in focus"
    page.press("Enter")
    assert page.run("location.hash") == "#scores"
    reached = set()
    for _ in range(
        page.run("document.querySelectorAll('a, button, input, select, summary, video, [tabindex]').length")
    ):
        page.press("Tab")
        reached.add(page.run("document.activeElement.closest('section, nav, header')?.id ?? ''"))
    assert reached >= {"classes", "predictions", "comparison", "footage", "embeddings", "training", "settings"}
    page.run("document.querySelector('[data-viewer=footage]').focus()")
    before = page.run("viewers.find((one) => one.element === document.activeElement).current")
    page.press("ArrowRight")
    assert page.run("viewers.find((one) => one.element === document.activeElement).current") == before + 1


def test_what_a_screen_reader_needs(page: Page, both: Path) -> None:
    page.open(both)
    levels = page.run("[...document.querySelectorAll('h1, h2, h3, h4')].map((heading) => Number(heading.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    unnamed = {
        "column or row": "th:not([scope])",
        "heading": "h1:empty, h2:empty, h3:empty",
        "picture": "img:not([alt]), svg:not([aria-label], [aria-hidden]), video:not([aria-label])",
        "choice": "[role=group]:not([aria-label]), [role=tablist]:not([aria-label])",
    }
    for what, selector in unnamed.items():
        assert page.run(f"[...document.querySelectorAll('{selector}')].map((one) => one.outerHTML)") == [], what
    named = "(one) => one.getAttribute('aria-label') ?? one.textContent.trim()"
    assert all(page.run(f"[...document.querySelectorAll('button')].map({named})"))
    panels = page.run(
        "[...document.querySelectorAll('.panel')].map((one) => [one.role, one.dataset.title,"
        " document.getElementById(one.getAttribute('aria-labelledby')).textContent])"
    )
    assert {role for role, _, _ in panels} == {"tabpanel"}
    assert all(title == tab for _, title, tab in panels)
    assert page.run("document.querySelector('video').controls")


@pytest.mark.parametrize("dark", [False, True])
def test_texts_stand_out(page: Page, both: Path, dark: bool) -> None:
    page.open(both, dark=dark)
    page.run("for (const one of document.querySelectorAll('details')) one.open = true")
    page.run("for (const one of document.querySelectorAll('.panel')) one.hidden = false")
    page.run("document.querySelector('.toggles button').click()")
    assert page.run(HARD_TO_READ) == []


def test_on_paper_it_is_light_and_whole(page: Page, both: Path) -> None:
    page.open(both, width=718, dark=True, printed=True)  # a sheet of A4 between its margins
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    shown = "[...document.querySelectorAll('{}')].filter((one) => one.checkVisibility()).length"
    assert page.run(shown.format(".panel")) == page.run("document.querySelectorAll('.panel').length")
    assert page.run(shown.format("nav, .tabs, .controls, .strip, .keys")) == 0
    title = "getComputedStyle(document.getElementById('classes-val'), '::before').content"
    assert page.run(title) == '"new videos (validation)"'
    divided = (
        "[...document.querySelectorAll('{}')].filter((one) => getComputedStyle(one).breakInside !== 'avoid').length"
    )
    assert page.run(divided.format("figure, tr, .viewer, .clouds")) == 0
    assert page.run("document.documentElement.scrollWidth") <= 718


def test_light_and_dark_and_colours(page: Page, both: Path, tmp_path: Path) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    page.open(both, dark=True)
    page.run("localStorage.clear()")
    page.open(both, dark=True)
    dark = page.run(background)
    page.screenshot(tmp_path / "dark.png")
    page.click("#theme")
    light = page.run(background)
    assert dark != light
    page.open(both, dark=True)
    assert page.run(background) == light, "the choice is remembered"
    page.screenshot(tmp_path / "light.png")
    brightness = [read_image(tmp_path / f"{name}.png").mean() for name in ("dark", "light")]
    assert brightness[0] < 70
    assert brightness[1] > 200
    before = page.run("getComputedStyle(document.querySelector('#classes .swatch')).backgroundColor")
    page.run("paletteChoice.value = 'safe'; paletteChoice.dispatchEvent(new Event('change'))")
    assert page.run("getComputedStyle(document.querySelector('#classes .swatch')).backgroundColor") != before
    page.run("localStorage.clear()")


def test_fits_a_laptop_and_a_telephone(page: Page, both: Path) -> None:
    for width in (1280, 400):
        page.open(both, width=width)
        page.run("for (const one of document.querySelectorAll('details')) one.open = true")
        assert page.run("document.documentElement.scrollWidth") <= width
        widths = page.run("[...document.querySelectorAll('.panels figure')].map((one) => one.clientWidth)")
        assert min(widths) > 100, "pictures that show something"


@pytest.mark.parametrize("frames", [True, False])
def test_what_is_missing_breaks_nothing(page: Page, runs: Runs, tmp_path: Path, console: Console, frames: bool) -> None:
    page.open(write_report([runs.unmasked], tmp_path / "report.html", frames=frames, console=console))
    page.press("ArrowRight")
    page.press("e")
    assert page.run("document.querySelectorAll('.viewer').length") == (2 if frames else 0)
    assert page.run("document.querySelectorAll('#footage .area').length") > 0
    if frames:
        assert painted(page, 1) > 0


@pytest.mark.parametrize("count", [3, 4])
def test_tables_of_several_runs_fit_into_1280_pixels(page: Page, runs: Runs, tmp_path: Path, count: int) -> None:
    folders = [tmp_path / f"videos-{name}-0" for name in ("supervised", "pgvcl", "stitch", "uamt")[:count]]
    for number, folder in enumerate(folders):
        shutil.copytree((runs.supervised, runs.pgvcl)[number % 2], folder)
    report = write_report(folders, tmp_path / "report.html", frames=False)
    page.open(report, width=1280 - 15)  # with a scroll bar
    hidden = "[...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth)"
    for place in range(page.run("document.querySelectorAll('.tabs')[0].children.length")):
        page.run(f"document.querySelectorAll('.tabs').forEach((tabs) => tabs.children[{place}]?.click())")
        assert page.run(f"{hidden}.map((box) => box.firstElementChild.className)") == []
    tables = page.run("document.querySelectorAll('#confusion-test table').length")
    assert tables == math.ceil(count / 3), "more than three go below each other"
    page.open(report, width=400)
    assert page.run("document.documentElement.scrollWidth") <= 400
    scrolling = page.run(f"{hidden}.filter((box) => box.closest('#confusion-test')).length")
    assert scrolling == tables, "on a telephone each moves in its own box"
