"""The ML backend of Label Studio, spoken to over HTTP as Label Studio does."""

import json
import threading
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from suture.data.classes import ClassTable
from suture.data.datasets import load_dataset
from suture.data.formats.brush import decode_brush
from suture.prediction.predictor import Prediction
from suture.studio import prediction_service
from suture.studio.prediction_service import MAX_BODY_BYTES, MAX_TASKS
from suture.studio.run_app import run_app

Call = Callable[..., tuple[int, Any]]


class HalfPredictor:
    """Predicts class 1 in the left half of a frame, and class 0 in the right."""

    classes = ClassTable(("tissue", "tool"), ((0, 0, 0), (9, 9, 9)), {0: 0, 1: 1})
    network = SimpleNamespace(identity={"name": "model.safetensors", "sha256": "ab" * 32})

    def predict(self, frame: np.ndarray, view: Any) -> list[Prediction]:
        mask = np.zeros(frame.shape[:2], np.uint8)
        mask[:, : frame.shape[1] // 2] = 1
        return [Prediction(mask, 0.9, 0.25)]


@pytest.fixture(scope="module")
def call(labelled_data: Path) -> Call:
    """Send a request to a running service, and return status and JSON."""
    predictor: Any = HalfPredictor()
    app = prediction_service.prediction_service(load_dataset(labelled_data), predictor)
    addresses: Queue[str] = Queue()
    threading.Thread(target=run_app, args=(app, 0, addresses.put), daemon=True).start()
    place = urlsplit(addresses.get(timeout=30)).netloc

    def send(method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = HTTPConnection(place, timeout=30)
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text.startswith(b"{") else text

    return send


def task(name: str, **data: str) -> dict[str, Any]:
    return {"id": 1, "data": {"image": name, **data}, "meta": {}}


def test_label_studio_connects(call: Call) -> None:
    assert call("GET", "/health")[1]["status"] == "UP"
    status, answer = call("POST", "/setup", {"project": "1.2", "schema": "<View/>", "hostname": "", "access_token": ""})
    assert (status, answer) == (200, {"model_version": "abababababab"})


@pytest.mark.parametrize(
    "data",
    [
        task("/data/local-files/?d=images/{}.png"),
        task("/data/upload/3/cb0618f6-{}.png"),
        task("s3://other", frame="{}"),
    ],
)
def test_each_task_gets_the_draft_of_its_frame(call: Call, labelled_data: Path, data: dict[str, Any]) -> None:
    name = f"{load_dataset(labelled_data).videos[0].id}__frame_000003"
    content = {"tasks": [{**data, "data": {key: text.format(name) for key, text in data["data"].items()}}] * 2}
    status, answer = call("POST", "/predict", {**content, "project": "1.2", "label_config": "<View/>", "params": {}})
    assert status == 200
    assert [one["score"] for one in answer["results"]] == [0.25, 0.25]
    regions = {one["value"]["brushlabels"][0]: one for one in answer["results"][1]["result"]}
    tool = regions["tool"]
    mask = decode_brush(tool["value"]["rle"], tool["original_height"], tool["original_width"])
    assert mask[:, : mask.shape[1] // 2].all()
    assert mask.sum() * 2 == mask.size


@pytest.mark.parametrize("name", ["nowhere__frame_000001.png", "../../etc/passwd", "{}__frame_999999.png"])
def test_other_images_are_not_read(call: Call, labelled_data: Path, name: str) -> None:
    video = load_dataset(labelled_data).videos[0].id
    status, answer = call("POST", "/predict", {"tasks": [task(name.format(video))]})
    assert status == 422
    assert "is no frame" in answer["detail"]


def test_requests_are_limited_in_size_number_and_host(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("POST", "/predict", {"tasks": [task("a")] * (MAX_TASKS + 1)})[0] == 422
    assert call("POST", "/predict", "a" * MAX_BODY_BYTES)[0] == 413
    assert call("POST", "/train", {})[0] == 404
    assert call("GET", "/health", Host="evil.example")[0] == 400
    monkeypatch.setattr(prediction_service, "MAX_REQUESTS_PER_MINUTE", 0)
    assert call("GET", "/health")[0] == 429
