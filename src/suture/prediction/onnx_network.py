"""ONNX files of `suture export` as networks from images to logits."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from suture.core.errors import UserError
from suture.core.io import check_format, parse_json, require_regular_file
from suture.core.schemas import OnnxRecord, validate_shape
from suture.data.view import View
from suture.models.model_files import fingerprint
from suture.prediction.input_clip import read_training_view
from suture.prediction.network import Network, class_table

ONNX_FORMAT = 1
"""Format of the entry `suture` in the metadata of an ONNX file."""


class OnnxNetwork(nn.Module):
    """An ONNX file of `suture export` that is called like a segmenter.

    Args:
        session: ONNX Runtime's session.
        multiple: Sides of images are padded to a multiple of this.
    """

    def __init__(self, session: Any, multiple: int) -> None:
        super().__init__()
        self.session = session
        self.multiple = multiple

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (B, C, h, w) that a file with scores has for images (B, 3, h, w) in 0..1."""
        return self.run((images * 255).round().byte().permute(0, 2, 3, 1)).float().to(images.device)

    def run(self, frames: Tensor) -> Tensor:
        """Return the file's output for frames (B, h, w, 3), uint8, computed one frame at a time."""
        height, width = frames.shape[1:3]
        padding = (0, -height % self.multiple), (0, -width % self.multiple), (0, 0)
        padded = [np.pad(frame, padding, mode="edge") for frame in frames.cpu().numpy()]
        outputs = [self.session.run(None, {"frames": frame[None]})[0] for frame in padded]
        # Joined by NumPy: PyTorch's threads and the runtime's would wait for each other.
        return torch.from_numpy(np.concatenate(outputs)[..., :height, :width])


def open_onnx(path: Path, device: torch.device, required: bool) -> Network:
    """Open an ONNX file of `suture export`.

    Args:
        path: The file.
        device: Where it runs, if this ONNX Runtime can.
        required: Raise if it cannot run on the device.
    """
    try:
        import onnxruntime
        from onnxruntime.capi import onnxruntime_pybind11_state
    except ImportError as error:
        raise UserError(f"{path} needs ONNX Runtime, which is not installed: pip install onnxruntime.") from error
    cuda = "CUDAExecutionProvider"
    providers: list[Any] = ["CPUExecutionProvider"]
    if device.type == "cuda" and cuda in onnxruntime.get_available_providers():
        providers.insert(0, (cuda, {"device_id": device.index or 0}))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    require_regular_file(path)
    kinds = [kind for kind in vars(onnxruntime_pybind11_state).values() if isinstance(kind, type)]
    errors: tuple[type[Exception], ...] = (RuntimeError, *(kind for kind in kinds if issubclass(kind, Exception)))
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=providers)
        shapes = [one.shape for one in session.get_inputs()]
        notes = session.get_modelmeta().custom_metadata_map.get("suture", "null")
    except errors as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path} is no ONNX file of `suture export` ({reason}): export it again.") from error
    about = parse_json(notes, str(path))
    if not isinstance(about, dict) or len(shapes) != 1 or len(shapes[0]) != 4:
        raise UserError(f"{path} is no ONNX file of `suture export`: export it again.")
    check_format(path, about.get("format"), ONNX_FORMAT)
    validate_shape(path, about, OnnxRecord)
    names = tuple(entry["name"] for entry in about["classes"])
    colors = tuple((r, g, b) for r, g, b in (entry["color"] for entry in about["classes"]))
    fixed = about["kind"] == "fixed"
    height, width = shapes[0][1:3] if fixed else about["size"]
    if not (isinstance(height, int) and isinstance(width, int)):
        raise UserError(f"{path} takes frames of any size, but says that theirs is fixed: export it again.")
    view = View.parse(about["view"], str(path)) if about["view"] else None
    run = about["run"]
    # ONNX Runtime silently continues on the CPU if its CUDA libraries are missing.
    if required and device.type != "cpu" and cuda not in session.get_providers():
        raise UserError(f"{path} cannot run on {device}: this ONNX Runtime has no CUDA; pip install onnxruntime-gpu.")
    return Network(
        OnnxNetwork(session, 1 if fixed else about["multiple"]),
        class_table(names, colors, run.get("mirror", [])),
        (height, width),
        torch.device("cpu"),
        fingerprint(path),
        any_size=not fixed,
        scored=about["output"] == "logits",
        view="auto" if view else read_training_view(run.get("view", "auto"), str(path)),
        videos_by=run.get("videos_by", "folder"),
        deinterlace=run.get("deinterlace", False),
        crops=view is not None,
    )
