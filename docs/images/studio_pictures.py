"""Make the pictures of the studio anew, in this folder: `python docs/images/studio_pictures.py`. They need Chromium.

A small model is trained on generated video, which takes some minutes.
"""

import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).resolve().parent
SETTLE_MS = 1500
"""Time for the page to draw before its picture is taken."""
LABELLED_EVERY = 10


def run(*command: Any) -> None:
    subprocess.run([sys.executable, "-m", "suture", *map(str, command)], check=True)


def save(page: Page, name: str) -> None:
    page.wait_for_timeout(SETTLE_MS)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.save(HERE / name, quality=82, method=6)


def take_pictures(page: Page, address: str) -> None:
    page.goto(address)
    page.locator("body[data-ready=true]").wait_for()
    page.locator("#run").select_option("round1")
    page.click("#suggest button")
    page.locator("#suggest-state", has_text="frames suggested").wait_for(timeout=300_000)
    page.evaluate("studio.showFrame(20)")
    save(page, "studio-label.webp")
    page.locator("#canvas").focus()
    page.keyboard.press("n")
    save(page, "studio-draft.webp")
    page.click("#tab-train")
    save(page, "studio-train.webp")


def main() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, sync_playwright() as playwright:
        folder = Path(name)
        data, runs = folder / "videos", folder / "runs"
        run("synthetic", data, "--frames", 60, "--cases", 5, "--size", "480x320")
        for mask in (data / "masks").iterdir():
            if int(mask.stem[-6:]) % LABELLED_EVERY:
                mask.unlink()
        run("train", data, "-o", runs / "round1", "--preset", "demo", "--set", "method=supervised")
        command = [sys.executable, "-m", "suture", "studio", str(data), "--runs", str(runs), "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout
            address = re.search(r"http\S+", server.stdout.readline())
            assert address
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            take_pictures(browser.new_page(viewport={"width": 1280, "height": 800}), address[0])
            browser.close()
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
