"""The shared page in a real browser, here with the tables of a comparison."""

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from suture.web.page import render_page
from suture.web.table import Table


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_of_wide_tables_fits_the_window(page: Page, tmp_path: Path, width: int, scheme: Any) -> None:
    columns = ["Method", *(f"column {number}" for number in range(30))]
    table = Table.of_text(columns, [["übung & co", *["12.34 ± 0.56"] * 30]], title="Scores (%)", label="übung-1")
    content = {"title": "A <b>", "remarks": ["r"], "tables": [table], "charts": []}
    file = tmp_path / "page.html"
    file.write_text(render_page("comparison.html", "suture.comparison", **content))
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    page.goto(file.as_uri())
    assert page.title() == "A <b>"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("nav a.here").get_attribute("href") == "#übung-1"
    dark = "rgb(21, 24, 27)"
    assert (page.evaluate("getComputedStyle(document.body).backgroundColor") == dark) is (scheme == "dark")
    assert page.locator(".scroll").get_attribute("tabindex") == "0", "keys can move what is wider than the page"


def test_policy_allows_the_own_scripts_alone() -> None:
    html = render_page("comparison.html", "suture.comparison", title="<script>", remarks=[], tables=[], charts=[])
    policy = re.search(r"script-src ([^;]*);", html)
    assert policy
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    hashes = [b64encode(sha256(script.encode()).digest()).decode() for script in scripts]
    assert policy[1].split() == [f"'sha256-{one}'" for one in hashes]
    assert len(scripts) == 2
