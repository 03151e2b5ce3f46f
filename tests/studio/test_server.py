"""The studio's server: who may talk to it, and that its answers are those of the workspace."""

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import FRAMES, HEIGHT, LABELLED, ORIGIN, TOKEN, WIDTH
from fastapi.testclient import TestClient

from suture.studio.access_guard import MAX_BODY_BYTES
from suture.studio.mask_runs import pack_runs, unpack_runs
from suture.studio.server import kept_token, make_app
from suture.studio.workspace import Workspace

LABEL = "/api/videos/0/frames/3/label"


def test_token_becomes_a_strict_cookie_and_leaves_the_address(workspace: Workspace) -> None:
    client = TestClient(make_app(workspace, TOKEN), base_url=ORIGIN, follow_redirects=False)
    assert client.get("/").status_code == client.get("/", params={"token": "other"}).status_code == 403
    answer = client.get("/", params={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/").status_code == 200


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/overview", "/api/videos/0/frames/0.jpg", "/theme.css"])
def test_nothing_is_answered_without_the_token(workspace: Workspace, path: str) -> None:
    assert TestClient(make_app(workspace, TOKEN), base_url=ORIGIN).get(path).status_code == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "studio.example.org"}, 421),  # DNS rebinding
        ({"host": "127.0.0.1.example.org:8765"}, 421),
        ({"host": "localhost:9000", "origin": "http://localhost:9000"}, 200),  # an SSH tunnel
        ({"origin": "http://evil.example.org"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),  # another page on this machine
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"content-length": str(MAX_BODY_BYTES + 1)}, 413),
    ],
)
def test_foreign_pages_change_nothing(client: TestClient, root: Path, headers: dict[str, str], status: int) -> None:
    content = pack_runs(np.full((HEIGHT, WIDTH), 1, np.uint8))
    cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    answer = client.put(LABEL, content=content, headers={"cookie": cookie, **headers})
    assert answer.status_code == status
    assert len(list((root / "masks").glob("case01a*_000003.png"))) == (status == 200)


def test_body_without_a_length_is_limited_too(client: TestClient) -> None:
    parts = (bytes(2**20) for _ in range(MAX_BODY_BYTES // 2**20 + 1))
    assert client.put(LABEL, content=parts).status_code == 413


def test_pages_run_no_inline_script_and_reports_are_sandboxed(client: TestClient, tmp_path: Path) -> None:
    policy = client.get("/").headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    text = client.get("/").text
    assert "style=" not in text
    assert "onclick" not in text
    run = tmp_path / "runs/r1"
    run.mkdir(parents=True)
    for name in ("metrics.json", "report.html"):
        (run / name).write_text("{}")
    assert client.get("/runs/r1/report.html").headers["content-security-policy"].startswith("sandbox allow-scripts;")


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/runs/../data/report.html",
        "/runs/%2e%2e%2fdata/report.html",
        "/api/videos/99",
        "/api/videos/0/frames/9999.jpg",
        "/api/videos/0/frames/-1.jpg",
        "/api/videos/0/frames/0/masks/prediction?run=../data",
    ],
)
def test_no_path_leads_out_of_dataset_and_runs(client: TestClient, path: str) -> None:
    assert client.get(path).status_code in (404, 422)


def test_read_only_studio_shows_but_saves_nothing(
    root: Path, tmp_path: Path, open_client: Callable[..., TestClient]
) -> None:
    before = sorted(root.rglob("*"))
    client = open_client(Workspace(root, tmp_path / "runs", read_only=True))
    assert client.get("/api/videos/0/frames/0.jpg").status_code == 200
    content = pack_runs(np.zeros((HEIGHT, WIDTH), np.uint8))
    assert client.put(LABEL, content=content).status_code == 403
    assert client.delete(LABEL).status_code == 403
    assert client.post("/api/trainings", json={"name": "r"}).status_code == 403
    assert sorted(root.rglob("*")) == before


def test_frames_and_masks_reach_the_browser_unchanged(client: TestClient, workspace: Workspace) -> None:
    overview = client.get("/api/overview").json()
    assert [video["id"] for video in overview["videos"]] == [video.id for video in workspace.dataset]
    video = client.get("/api/videos/0").json()
    assert (video["frames"], video["labelled_frames"]) == (FRAMES, list(LABELLED))
    picture = client.get("/api/videos/0/frames/12.jpg").content
    shown = cv2.imdecode(np.frombuffer(picture, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
    frame = workspace.dataset.videos[0].read(12)
    assert shown.shape == frame.shape
    assert np.abs(shown.astype(int) - frame).mean() < 4
    ids = unpack_runs(client.get("/api/videos/0/frames/12/masks/label").content, (HEIGHT, WIDTH))
    expected = workspace.labels.read(workspace.dataset.videos[0], 12)
    assert expected is not None
    assert (ids == expected).all()
    assert client.get("/api/videos/0/frames/13/masks/label").status_code == 204


def test_damaged_masks_are_rejected(client: TestClient, root: Path) -> None:
    good = pack_runs(np.zeros((HEIGHT, WIDTH), np.uint8))
    foreign = pack_runs(np.full((HEIGHT, WIDTH), 77, np.uint8))
    for content in (b"", good[:-1], good[:-4], good + good[-4:], pack_runs(np.zeros((2, 2), np.uint8)), foreign):
        answer = client.put(LABEL, content=content)
        assert answer.status_code == 422
        assert answer.json()["message"]
    assert not list((root / "masks").glob("case01a*_000003.png"))


def test_token_is_private_and_survives_a_restart(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUTURE_CACHE", str(tmp_path / "cache"))
    token = kept_token(workspace)
    assert len(token) >= 32
    assert kept_token(workspace) == token
    assert (tmp_path / "cache/studio").stat().st_mode & 0o077 == 0
