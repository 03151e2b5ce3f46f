"""A small dataset, labelled in part, and the studio's workspace and client on it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from suture.data.synthetic.scenario import SyntheticSettings
from suture.data.synthetic.write_synthetic import write_synthetic
from suture.studio.server import make_app
from suture.studio.workspace import Workspace

TOKEN = "a-token"
ORIGIN = "http://127.0.0.1:8765"
WIDTH, HEIGHT, FRAMES = 96, 64, 24
LABELLED = (0, 12)
"""Frames of each video that have a mask."""


@pytest.fixture(scope="session")
def labelled_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated videos, of which few frames are labelled; tests copy it."""
    root = tmp_path_factory.mktemp("studio") / "data"
    write_synthetic(root, SyntheticSettings(cases=3, frames=FRAMES, width=WIDTH, height=HEIGHT), progress=False)
    for mask in (root / "masks").iterdir():
        if int(mask.stem[-6:]) not in LABELLED:
            mask.unlink()
    return root


@pytest.fixture
def root(labelled_data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(labelled_data, tmp_path / "data"))


@pytest.fixture
def open_client() -> Callable[..., TestClient]:
    """Client with the token's cookie, as a browser is after its first visit."""

    def make(workspace: Workspace) -> TestClient:
        client = TestClient(make_app(workspace, TOKEN), base_url=ORIGIN, headers={"origin": ORIGIN})
        assert client.get("/", params={"token": TOKEN}).status_code == 200
        return client

    return make


@pytest.fixture
def workspace(root: Path, tmp_path: Path) -> Workspace:
    return Workspace(root, tmp_path / "runs")


@pytest.fixture
def client(workspace: Workspace, open_client: Callable[..., TestClient]) -> TestClient:
    return open_client(workspace)
