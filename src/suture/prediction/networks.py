"""Finished models from disk, whatever they were saved as: each a network from images to scores."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn

from suture.core.errors import UserError
from suture.core.io import check_format, suffix_of
from suture.data.classes import IGNORE, ClassTable
from suture.data.dataset import VideosBy
from suture.data.view import View
from suture.models.model_files import DESCRIPTION, TRAINED_ON, WEIGHTS, fingerprint
from suture.prediction.inputs import ClipView, read_training_view

ONNX_FORMAT = 1
"""Of the entry `suture` in an ONNX file's metadata."""
_SURE = 40.0
"""The score of the class that a network without scores decided for; the others have 0."""


@dataclass(frozen=True)
class Network:
    """A network and what has to be known to use it."""

    module: nn.Module
    """Images (B 3 h w, 0..1) to scores (B C h w; a further channel says that a pixel is to be ignored)."""
    classes: ClassTable
    size: tuple[int, int]
    """Height and width of the images it takes."""
    trained: tuple[int, int]
    """Height and width at which it was trained; an ONNX file of a fixed size resizes its images to it."""
    device: torch.device
    any_size: bool
    """Whether it takes images of other sizes too."""
    scored: bool
    """Whether its scores tell how sure it is; else it gives its decisions only."""
    identity: dict[str, str]
    """Name and SHA-256 of its file."""
    view: ClipView | Literal["auto"] = "auto"
    """What it was trained on, of frames of the same device."""
    videos_by: VideosBy = "folder"
    """How the images that it was trained on were told apart."""
    cuts: bool = False
    """Whether it cuts the view out of whole frames itself."""

    def takes(self, height: int, width: int) -> bool:
        """Whether frames of this size can be given: in those of another shape, a view of its own lies elsewhere."""
        return not self.cuts or height * self.size[1] == width * self.size[0]


def open_network(path: Path, device: str = "auto") -> Network:
    """The network of a run folder, of a `model.safetensors` with its `model.json`, or of an ONNX file."""
    if not path.exists():
        raise UserError(f"The model {path} does not exist: give a run folder, a {WEIGHTS} or an ONNX file.")
    if suffix_of(path) == ".onnx":
        return _open_onnx(path, device)
    if not path.is_dir() and suffix_of(path) != ".safetensors":
        raise UserError(
            f"{path} is no model that Suture knows: give a run folder, a {WEIGHTS} with its {DESCRIPTION} beside it, "
            "or an ONNX file."
        )
    # Not before: an ONNX file needs none of the libraries of networks, which take seconds to load.
    from suture.models.fold_batch_norms import fold_batch_norms
    from suture.models.model import Model

    model = Model.load(path)
    where = _torch_device(device)
    segmenter = model.segmenter.to(where).eval()
    if where.type == "cpu":  # on a GPU a bias to add takes longer than batch norm (benchmarks/folded.py)
        fold_batch_norms(segmenter, torch.zeros(1, 3, *model.size))
    segmenter.to(memory_format=torch.channels_last).requires_grad_(False)
    weights = path / WEIGHTS if path.is_dir() else path
    noted = noted_training(weights)
    return Network(
        segmenter,
        _table(model.names, model.colors),
        model.size,
        model.size,
        where,
        any_size=True,
        scored=True,
        identity=fingerprint(weights),
        view=read_training_view(noted["view"], str(weights)),
        videos_by=_videos_by(noted),
    )


def noted_training(weights: Path) -> dict[str, Any]:
    """What the header of a weights file says of its training: the view, and how videos were told apart."""
    with safe_open(weights, framework="pt") as file:
        noted = json.loads((file.metadata() or {}).get(TRAINED_ON, "{}"))
    return {key: noted.get(key) for key in ("view", "videos_by")}


def _videos_by(noted: Mapping[str, Any]) -> VideosBy:
    """How videos were told apart; older models say nothing."""
    return "name" if noted.get("videos_by") == "name" else "folder"


class OnnxNetwork(nn.Module):
    """An ONNX file of `suture export` as a network from images to scores."""

    def __init__(self, session: Any, classes: int, multiple: int, scored: bool, view: View | None) -> None:
        super().__init__()
        self.session = session
        self.classes = classes
        self.multiple = multiple
        self.scored = scored
        self.view = view
        """The part of its frames that the file looks at; it cuts it out itself."""

    def forward(self, images: Tensor) -> Tensor:
        """B 3 h w in 0..1 to scores; one image at a time, as the files take them.

        B C h w, or one more channel where the file itself says that some pixels are to be ignored.
        """
        height, width = images.shape[-2:]
        frames = (images * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
        padding = (0, -height % self.multiple), (0, -width % self.multiple), (0, 0)
        found = [self._scores(np.pad(frame, padding, mode="edge")) for frame in frames]
        return torch.cat(found).to(images.device)[..., :height, :width]

    def masks(self, frames: Tensor) -> Tensor:
        """B h w 3 (uint8) to B h w, as a file that gives decisions of frames of one size has them."""
        # Not joined by PyTorch, whose threads and the runtime's would wait for each other.
        return torch.from_numpy(np.concatenate([self._run(frame) for frame in frames.numpy()]))

    def _run(self, frame: np.ndarray) -> np.ndarray:
        (given,) = self.session.run(None, {"frames": frame[None]})
        found: np.ndarray = given
        return found

    def _scores(self, frame: np.ndarray) -> Tensor:
        found = torch.from_numpy(self._run(frame))
        if not self.scored:
            classes = torch.tensor([*range(self.classes), IGNORE]).view(1, -1, 1, 1)
            return (found[:, None] == classes).float() * _SURE
        height, width = frame.shape[:2]
        view = self.view or View(0, 0, width, height)
        # Probabilities are enlarged, not scores, as of a run and inside a file that gives masks.
        chances = F.interpolate(found.float().softmax(1), (view.height, view.width), mode="bilinear")
        scores = chances.clamp_min(torch.finfo(torch.float32).tiny).log()
        if self.view is None:
            return scores
        around = (view.x, width - view.x - view.width, view.y, height - view.y - view.height)
        outside = F.pad(torch.zeros(1, 1, view.height, view.width), around, value=_SURE)
        return torch.cat([F.pad(scores - scores.amax(1, keepdim=True), around, value=-_SURE), outside - _SURE], 1)


def _open_onnx(path: Path, device: str) -> Network:
    try:
        import onnxruntime
    except ImportError as error:
        raise UserError(f"{path} needs ONNX Runtime, which is not installed: pip install onnxruntime.") from error
    where, cuda = _torch_device(device), "CUDAExecutionProvider"
    providers: list[Any] = ["CPUExecutionProvider"]
    if where.type == "cuda" and cuda in onnxruntime.get_available_providers():
        providers.insert(0, (cuda, {"device_id": where.index or 0}))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path} is no ONNX file that can be loaded ({reason}): export it again.") from error
    # A runtime whose CUDA libraries are missing goes on without them, and without a word.
    if device != "auto" and where.type != "cpu" and cuda not in session.get_providers():
        raise UserError(f"{path} cannot run on {device}: this ONNX Runtime has no CUDA; pip install onnxruntime-gpu.")
    said = session.get_modelmeta().custom_metadata_map.get("suture")
    try:
        about = json.loads(said or "")
        check_format(path, about["format"], ONNX_FORMAT)
        names = tuple(str(entry["name"]) for entry in about["classes"])
        colors = tuple((int(r), int(g), int(b)) for r, g, b in (entry["color"] for entry in about["classes"]))
        fixed, scored = about["kind"] == "fixed", about["output"] == "logits"
        trained = int(about["size"][0]), int(about["size"][1])
        height, width = session.get_inputs()[0].shape[1:3] if fixed else trained
        multiple = 1 if fixed else int(about["multiple"])
        view = View.parse(about["view"], str(path)) if about.get("view") else None
        run = about.get("run", {})
        looked_at = "auto" if view else read_training_view(run.get("view"), str(path))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} was not written by `suture export`: it does not say its classes.") from error
    module = OnnxNetwork(session, len(names), multiple, scored, view)
    return Network(
        module,
        _table(names, colors),
        (height, width),
        trained,
        torch.device("cpu"),
        any_size=not fixed,
        scored=scored,
        identity=fingerprint(path),
        view=looked_at,
        videos_by=_videos_by(run),
        cuts=view is not None,
    )


def _table(names: tuple[str, ...], colors: tuple[tuple[int, int, int], ...]) -> ClassTable:
    return ClassTable(names, colors, {number: number for number in range(len(names))})


def _torch_device(wanted: str) -> torch.device:
    """`auto` as what it means here: the GPU of this process's number among those on its node."""
    if wanted == "auto":
        if torch.cuda.is_available():
            number = int(os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or 0)
            return torch.device("cuda", number % torch.cuda.device_count())
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise UserError(f"device: {wanted!r} is none, expected auto, cpu, cuda, cuda:1 or mps.") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(
            f"device: {wanted} was asked for, but torch sees {torch.cuda.device_count()} GPUs here: use cpu."
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UserError("device: mps was asked for, but there is none here: use cpu.")
    return device
