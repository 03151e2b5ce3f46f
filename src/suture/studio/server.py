"""Server of the studio: routes that call a `Workspace`, and nothing else."""

import secrets
from collections.abc import Callable
from importlib.resources import files
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field

from suture.core.errors import UserError
from suture.core.io import read_text, write_text
from suture.data.cache import cache_folder
from suture.studio.access_guard import REPORT_POLICY, AccessGuard
from suture.studio.mask_runs import pack_runs, unpack_runs
from suture.studio.refine_selection import refine_selection
from suture.studio.run_app import run_app
from suture.studio.workspace import Layer, Workspace

FRAMES_ARE_KEPT = {"Cache-Control": "private, max-age=3600"}
THUMBNAIL_SIDE = 192
Text = Annotated[str, Field(max_length=200)]


class Body(BaseModel, extra="forbid"):
    """Base of request bodies: unknown keys are errors."""


class Outline(Body):
    points: list[tuple[float, float]] = Field(max_length=10_000)


class ExcludeRequest(Body):
    excluded: bool


class ClassNames(Body):
    names: list[Text] = Field(max_length=250)


class SuggestionRequest(Body):
    run: Text | None = None
    budget: int = Field(12, ge=1, le=500)


class TrainingRequest(Body):
    name: Text
    method: Text = "stitch"
    preset: Text | None = None
    settings: list[Text] = Field(default_factory=list, max_length=50)


def make_app(workspace: Workspace, token: str) -> FastAPI:
    """Make the app of a workspace; requests need the token."""
    app = FastAPI(title="Suture studio", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(AccessGuard, token=token, cookie=f"suture-{workspace.key}", read_only=workspace.read_only)
    static = files("suture.studio") / "static"
    app.mount("/static", StaticFiles(directory=str(static)), name="static")

    @app.exception_handler(UserError)
    def user_error(request: Request, error: UserError) -> JSONResponse:
        return JSONResponse({"message": str(error)}, 422)

    @app.exception_handler(OSError)
    def os_error(request: Request, error: OSError) -> JSONResponse:
        return JSONResponse({"message": f"{error.filename or 'The disk'}: {error.strerror}: nothing was saved."}, 507)

    @app.get("/")
    def page() -> Response:
        return FileResponse(str(static / "index.html"))

    @app.get("/theme.css")
    def theme() -> Response:
        return FileResponse(str(files("suture.web") / "theme.css"))

    @app.get("/api/overview")
    def overview() -> dict[str, Any]:
        return workspace.overview()

    @app.get("/api/videos/{number}")
    def timeline(number: int, run: str | None = None) -> dict[str, Any]:
        return workspace.timeline(number, run)

    @app.get("/api/videos/{number}/thumbnail.jpg")
    def thumbnail(number: int) -> Response:
        video = workspace.video(number)
        usable = video.usable
        index = usable[len(usable) // 3] if usable else 0
        return Response(workspace.pictures.jpeg(video, index, THUMBNAIL_SIDE), 200, FRAMES_ARE_KEPT, "image/jpeg")

    @app.get("/api/videos/{number}/frames/{index}.jpg")
    def frame(number: int, index: int) -> Response:
        picture = workspace.pictures.jpeg(workspace.frame(number, index), index)
        return Response(picture, 200, FRAMES_ARE_KEPT, "image/jpeg")

    @app.get("/api/videos/{number}/frames/{index}/masks/{layer}")
    def mask(number: int, index: int, layer: Layer, run: str | None = None) -> Response:
        ids = workspace.mask(workspace.frame(number, index), index, layer, run)
        return Response(status_code=204) if ids is None else _binary(pack_runs(ids))

    @app.put("/api/videos/{number}/frames/{index}/label")
    async def save(
        request: Request,
        number: int,
        index: int,
        how: Literal["paint", "draft", "carried", "empty"] = "paint",
        seconds: Annotated[float, Query(ge=0, allow_inf_nan=False)] = 0.0,
    ) -> dict[str, Any]:
        content = await request.body()

        def write() -> int:
            video = workspace.frame(number, index)
            width, height = video.size_of(index)
            return workspace.save(video, index, unpack_runs(content, (height, width)), how, seconds)

        return {"pixels": await run_in_threadpool(write)}

    @app.delete("/api/videos/{number}/frames/{index}/label")
    def remove(number: int, index: int) -> None:
        workspace.remove(workspace.frame(number, index), index)

    @app.put("/api/videos/{number}/frames/{index}/excluded")
    def exclude(number: int, index: int, body: ExcludeRequest) -> None:
        workspace.exclude(workspace.frame(number, index), index, body.excluded)

    @app.post("/api/videos/{number}/frames/{index}/selection")
    def select(number: int, index: int, body: Outline) -> Response:
        video = workspace.frame(number, index)
        return _binary(pack_runs(refine_selection(video.read(index), body.points)))

    @app.post("/api/classes")
    def classes(body: ClassNames) -> dict[str, Any]:
        workspace.name_classes(body.names)
        return workspace.overview()

    @app.post("/api/suggestions")
    def suggest(body: SuggestionRequest) -> None:
        run = workspace.trainings.run(body.run).folder.name if body.run else None
        workspace.drafts.start(run, body.budget)

    @app.get("/api/jobs")
    def jobs() -> dict[str, Any]:
        return {"suggestions": workspace.drafts.state, "runs": workspace.trainings.states()}

    @app.post("/api/trainings")
    def train(body: TrainingRequest) -> None:
        workspace.train(body.name, body.preset, body.method, body.settings)

    @app.post("/api/trainings/{name}/{action}")
    def control(name: str, action: Literal["stop", "resume"]) -> None:
        actions: dict[str, Callable[[str], None]] = {
            "stop": workspace.trainings.stop,
            "resume": workspace.trainings.resume,
        }
        actions[action](name)

    @app.get("/api/rounds")
    def rounds() -> list[dict[str, Any]]:
        return workspace.rounds()

    @app.get("/runs/{name}/report.html")
    def report(name: str) -> Response:
        path = workspace.trainings.report(name, write=not workspace.read_only)
        return FileResponse(path, headers={"Content-Security-Policy": REPORT_POLICY})

    return app


def _binary(content: bytes) -> Response:
    return Response(content, media_type="application/octet-stream")


def kept_token(workspace: Workspace) -> str:
    """Return this user's random token for the dataset; it stays the same, so that an open page survives a restart."""
    path = cache_folder() / "studio" / f"{workspace.key}.token"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    if not path.exists():
        write_text(path, secrets.token_urlsafe(32))
    return read_text(path)


def serve(workspace: Workspace, port: int, announce: Callable[[str], None]) -> None:
    """Serve a workspace on 127.0.0.1 until the process is stopped.

    Args:
        workspace: What to serve.
        port: Port; 0 takes a free one.
        announce: Called with the address to open, once it answers.
    """
    token = kept_token(workspace)
    run_app(make_app(workspace, token), port, lambda address: announce(f"{address}/?token={token}"))
