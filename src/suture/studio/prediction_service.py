"""HTTP service of a run: Label Studio's ML backend, which draws drafts and never trains."""

import re
import threading
import time
from collections import deque
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.middleware.base import RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import Response

from suture.annotate.drafts import Draft, ToolLabels
from suture.annotate.labelstudio import prediction
from suture.data.dataset import Dataset
from suture.data.formats.labelstudio import FRAME
from suture.data.formats.shapes import frame_of
from suture.prediction.predictor import Predictor
from suture.studio.access_guard import LOCAL_HOSTS
from suture.studio.run_app import LOCAL_HOST

MAX_BODY_BYTES = 2**20
MAX_TASKS = 32
"""Tasks of one request."""
MAX_REQUESTS_PER_MINUTE = 600
_FRAME = re.compile(r"(?:.*/)?(?:[0-9a-f]{8}-)?(?P<video>.+)__frame_(?P<index>[0-9]{1,9})")
"""Name of a frame, also with the prefix of an upload."""


class Task(BaseModel):
    """A task of Label Studio; its data or its image name our frame."""

    data: dict[str, Any]


class PredictRequest(BaseModel):
    """Request of Label Studio for drafts; other keys are ignored."""

    tasks: Annotated[list[Task], Field(max_length=MAX_TASKS)]


def prediction_service(dataset: Dataset, predictor: Predictor, host: str = LOCAL_HOST) -> FastAPI:
    """Make the service of a model, which predicts frames of a dataset by their names and reads no other files.

    Args:
        dataset: Videos of the frames.
        predictor: The model.
        host: Address that it listens on; on this machine's own, requests for other host names are rejected.
    """
    app = FastAPI(title="Suture", docs_url=None, redoc_url=None, openapi_url=None)
    lock = threading.Lock()
    version = predictor.network.identity["sha256"][:12]
    labels = ToolLabels.of_table(predictor.classes)
    recent: deque[float] = deque()
    if host == LOCAL_HOST:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=sorted(LOCAL_HOSTS))

    @app.middleware("http")
    async def limit(request: Request, call_next: RequestResponseEndpoint) -> Response:
        now = time.monotonic()
        while recent and recent[0] < now - 60:
            recent.popleft()
        if len(recent) >= MAX_REQUESTS_PER_MINUTE:
            return JSONResponse({"detail": "Too many requests: wait a minute."}, 429)
        recent.append(now)
        length = request.headers.get("content-length", "0" if request.method == "GET" else "")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            return JSONResponse({"detail": f"Requests need a length of at most {MAX_BODY_BYTES} bytes."}, 413)
        return await call_next(request)

    @app.get("/")
    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "UP", "model_class": "suture", "model_version": version}

    @app.post("/setup")
    def setup() -> dict[str, str]:
        return {"model_version": version}

    @app.post("/predict")
    def predict(body: PredictRequest) -> dict[str, Any]:
        results = [prediction(draft(task), labels) | {"model_version": version} for task in body.tasks]
        return {"results": results, "model_version": version}

    def draft(task: Task) -> Draft:
        names = [value for value in (task.data.get(FRAME), *task.data.values()) if isinstance(value, str)]
        match = next((match for name in names if (match := _FRAME.fullmatch(frame_of(name)))), None)
        video = next((video for video in dataset if match and video.id == match["video"]), None)
        if match is None or video is None or int(match["index"]) >= len(video):
            raise HTTPException(422, f"{names[:1]} is no frame of a training video of {dataset.name}.")
        with lock:
            (predicted,) = predictor.predict(video.read(int(match["index"])), video.view)
        return Draft(match[0], *video.size, predicted.mask, round(predicted.entropy, 4))

    return app
