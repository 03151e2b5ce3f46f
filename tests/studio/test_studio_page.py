"""The studio in a real browser: the whole loop, keys alone, a narrow screen, and crashes while drawing."""

import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import HEIGHT, WIDTH
from playwright.sync_api import Browser, Page, expect

sys.path.append(str(Path(__file__).resolve().parents[1]))
from commands import started

from suture.data.datasets import load_dataset

IDS = "Array.from(studio.state.mask?.ids ?? [])"
Serve = Callable[..., tuple[str, Any]]


@pytest.fixture
def serve(root: Path, tmp_path: Path) -> Iterator[Serve]:
    """Start `suture studio` in a process of its own; returns its address and the process."""
    with ExitStack() as stack:

        def start(port: int = 0) -> tuple[str, Any]:
            printed = tmp_path / f"printed-{time.monotonic_ns()}"
            command = ("suture", "studio", root, "--runs", tmp_path / "runs", "--port", port)
            process = stack.enter_context(started(*command, said=printed))
            for _ in range(600):
                if printed.exists() and (address := re.search(r"http\S+", printed.read_text())):
                    return address[0], process
                time.sleep(0.05)
            raise AssertionError(printed.read_text())

        yield start


def open_studio(page: Page, address: str) -> None:
    page.goto(address)
    page.locator("body[data-ready=true]").wait_for()


def stroke(page: Page, *points: tuple[float, float]) -> None:
    """Draw through points of the frame."""
    places = [page.evaluate(f"studio.toScreen({x}, {y})") for x, y in points]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=4)
    page.mouse.up()


def show_frame(page: Page, index: int) -> None:
    page.evaluate(f"studio.showFrame({index})")


def label_on_disk(root: Path, index: int) -> np.ndarray:
    dataset = load_dataset(root)
    return dataset.classes.encode(dataset.videos[0].masks[index].read(False))


def test_whole_loop(page: Page, serve: Serve, root: Path) -> None:
    address, _ = serve()
    open_studio(page, address)
    assert "token" not in page.url
    box = page.locator("#timeline").bounding_box()
    assert box
    page.mouse.move(box["x"] + 10, box["y"] + 15)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 15, steps=8)
    page.mouse.up()
    expect(page.locator("#frame-number")).to_have_value(re.compile("1[0-3]"))

    show_frame(page, 3)
    expect(page.locator("#frame-state")).to_have_text("not labelled")
    page.keyboard.press("4")
    stroke(page, (20, 20), (60, 40))
    expect(page.locator("#save")).to_have_text("Saved")
    drawn = page.evaluate(IDS)
    assert drawn.count(3) > 300
    assert label_on_disk(root, 3).ravel().tolist() == drawn
    page.reload()
    page.locator("body[data-ready=true]").wait_for()
    show_frame(page, 3)
    expect(page.locator("#frame-state")).to_have_text("labelled")
    assert page.evaluate(IDS) == drawn

    page.click("#tab-train")
    page.fill("#train-name", "toy")
    page.select_option("#train-method", "supervised")
    page.select_option("#train-preset", "demo")
    page.fill("#train-settings", "method.train.steps=2 data.size=32 compute.accelerator=cpu")
    page.click("#train button")
    finished = page.locator('[data-run="toy"] .chip[data-state="finished"], [data-run="toy"] .remark')
    finished.wait_for(timeout=90_000)
    assert page.locator('[data-run="toy"] .remark').count() == 0
    page.click("#tab-label")
    page.select_option("#run", "toy")
    page.fill("#budget", "3")
    page.click("#suggest button")
    expect(page.locator("#suggest-state")).to_have_text("3 frames suggested", timeout=30_000)
    page.locator("#canvas").focus()
    page.keyboard.press("n")
    expect(page.locator("#frame-state")).to_have_text("draft")
    before = sum(len(video.masks) for video in load_dataset(root))
    page.keyboard.press("a")
    expect(page.locator("#frame-state")).to_have_text("labelled")
    expect(page.locator("#save")).to_have_text("Saved")
    assert sum(len(video.masks) for video in load_dataset(root)) == before + 1, "other drafts are no labels"
    page.click("#tab-rounds")
    expect(page.locator("#rounds tr")).to_have_count(2)


def test_keys_alone(page: Page, serve: Serve, root: Path) -> None:
    address, _ = serve()
    open_studio(page, address)
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#frame-number")).to_have_value("3")
    page.keyboard.press("c")  # the nearest label, carried here
    expect(page.locator("#frame-state")).to_have_text("labelled")
    page.keyboard.press("Delete")
    expect(page.locator("#frame-state")).to_have_text("not labelled")
    page.keyboard.press("o")
    expect(page.locator("#frame-state")).to_have_text("labelled")
    expect(page.locator("#save")).to_have_text("Saved")
    assert set(label_on_disk(root, 3).ravel().tolist()) == {0}
    page.keyboard.press("Control+z")
    page.keyboard.press("Shift+ArrowRight")
    expect(page.locator("#frame-number")).to_have_value("13")
    page.keyboard.press("x")
    expect(page.locator("#frame-state")).to_have_text("excluded")
    page.keyboard.press("x")
    expect(page.locator("#frame-state")).to_have_text("not labelled")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    is_named = "one.ariaLabel || one.innerText || one.labels?.length"
    unreachable = f"(all) => all.filter((one) => one.tabIndex < 0 || !({is_named})).map((one) => one.outerHTML)"
    assert page.locator("main button, main input, main select, main canvas").evaluate_all(unreachable) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_page_labels_too(page: Page, serve: Serve, root: Path, scheme: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme=scheme)
    address, _ = serve()
    open_studio(page, address)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for tab in ("train", "rounds", "label"):
        page.click(f"#tab-{tab}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    show_frame(page, 5)
    stroke(page, (10, 10), (70, 50))
    expect(page.locator("#save")).to_have_text("Saved")
    assert label_on_disk(root, 5).shape == (HEIGHT, WIDTH)


def test_new_folder_of_videos_asks_for_its_classes(page: Page, serve: Serve, root: Path) -> None:
    for file in (*root.glob("masks/*"), root / "dataset.yaml", root / "exclude.csv"):
        file.unlink()
    address, _ = serve()
    page.goto(address)
    page.fill("#setup-names", "liver\ngrasper")
    page.click("#setup-form button")
    expect(page.locator("#classes li")).to_have_count(3, timeout=20_000)
    page.locator("body[data-ready=true]").wait_for()
    stroke(page, (20, 20), (60, 40))
    expect(page.locator("#save")).to_have_text("Saved")
    assert set(label_on_disk(root, 0).ravel().tolist()) == {0, 1}


def test_no_stroke_is_lost_when_server_and_page_die(chromium: Browser, serve: Serve, root: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address, server = serve(port)
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    open_studio(page, address)
    show_frame(page, 3)
    expect(page.locator("#frame-state")).to_have_text("not labelled")
    stroke(page, (20, 20), (60, 40))
    server.kill()
    server.join()
    stroke(page, (30, 50), (80, 20))
    expect(page.locator("#save")).to_have_attribute("data-state", "unsaved")
    drawn = page.evaluate(IDS)
    _, server = serve(port)
    expect(page.locator("#save")).to_have_text("Saved", timeout=15_000)
    assert label_on_disk(root, 3).ravel().tolist() == drawn, "the open page goes on with the new server"

    server.kill()
    server.join()
    stroke(page, (10, 10), (10, 60))
    drawn = page.evaluate(IDS)
    page.close(run_before_unload=False)
    address, _ = serve(port)
    page = context.new_page()
    open_studio(page, address)
    expect(page.locator("#save")).to_have_text("Saved", timeout=15_000)
    assert label_on_disk(root, 3).ravel().tolist() == drawn, "the next page sends what the last one could not"
    context.close()
