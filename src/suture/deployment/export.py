"""A finished model as one ONNX file that any system loads without Suture: frames in, class ids out."""

import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from suture.core.errors import UserError
from suture.core.io import remove_leftovers_of, write_bytes
from suture.data.classes import IGNORE
from suture.data.datasets import load_dataset
from suture.data.datasets.folder import require_outside_dataset
from suture.data.synthetic.render_video import render_video
from suture.data.synthetic.scenario import SyntheticSettings, plan_videos
from suture.data.view import View
from suture.deployment.export_options import require_new_or_same, validate_export_options
from suture.deployment.model_card import card_path, render_card
from suture.models.inference import interpolate_class_ids, resize_by_matrix, resize_frame
from suture.models.model import Model
from suture.models.model_files import WEIGHTS, fingerprint
from suture.models.segmenter import Segmenter
from suture.prediction.input_clip import read_training_view
from suture.prediction.onnx_network import ONNX_FORMAT
from suture.prediction.open_network import read_training_notes
from suture.training.run_folder import Run

OPSET = 18
MIN_AGREEMENT = {"fp32": 0.999, "fp16": 0.995}
"""Least share of pixels that must have the same class as in PyTorch."""
CHECKED_FRAMES = 4


@dataclass(frozen=True)
class ExportFormat:
    """Input and output of an exported file."""

    frame: tuple[int, int] | None
    """Height and width of its frames; None is any size, at which the network then runs."""
    view: View | None = None
    """Part of the frame that the network sees; the rest of the mask is `IGNORE`."""
    logits: bool = False
    """Output the network's scores of all classes instead of the mask."""
    half: bool = False
    """Compute in fp16."""

    @property
    def output(self) -> str:
        return "logits" if self.logits else "masks"

    @property
    def precision(self) -> str:
        return "fp16" if self.half else "fp32"

    def __str__(self) -> str:
        size = f"1×{self.frame[0]}×{self.frame[1]}" if self.frame else "B×H×W"
        output = "logits, float32" if self.logits else f"masks, uint8 {size}"
        return f"frames, uint8 {size}×3 → {output}; {self.precision}, opset {OPSET}"


class Exported(NamedTuple):
    """An exported file and its agreement with PyTorch."""

    path: Path
    card: Path
    shape: ExportFormat
    agreement: float
    """Share of pixels with the same class; PyTorch computes in fp32."""
    checked: int
    """Number of frames that were compared."""
    real: bool
    """The frames are of the run's own videos; otherwise they were generated."""


class DeployedSegmenter(nn.Module):
    """A segmenter from frames (B, H, W, 3), uint8, to class ids (B, H, W), uint8."""

    def __init__(self, segmenter: Segmenter, size: tuple[int, int], shape: ExportFormat) -> None:
        super().__init__()
        self.segmenter = segmenter
        self.size = size
        self.shape = shape

    def forward(self, frames: Tensor) -> Tensor:
        shape, view = self.shape, self.shape.view
        frames, around, inside = frames.float(), None, None  # first of all: TensorRT does nothing else with bytes
        if shape.frame and view:
            height, width = shape.frame
            around = view.x, width - view.x - view.width, view.y, height - view.y - view.height
            frames = frames[:, view.y : view.y + view.height, view.x : view.x + view.width]
            inside = torch.from_numpy(view.crop(view.mask(width, height))) if view.circle else None
        scene = (frames.shape[1], frames.shape[2])
        images = resize_by_matrix(frames, self.size if shape.frame else scene)
        scores = self.segmenter(images.to(self.segmenter.mean.dtype)).float()
        if shape.logits:
            return scores
        # Probabilities are averaged between pixels, as in the evaluation; the best class of a pixel needs none.
        probabilities = scores if scene == scores.shape[-2:] else _softmax(scores)
        return interpolate_class_ids(probabilities, scene, around, IGNORE, inside)


def _softmax(scores: Tensor) -> Tensor:
    """Softmax over the classes; ONNX Runtime's own takes ten times as long on this axis."""
    powers = (scores - scores.amax(1, keepdim=True)).exp()
    return powers / powers.sum(1, keepdim=True)


def export_run(
    folder: Path,
    output: Path,
    *,
    frame: tuple[int, int] | None = None,
    view: View | Literal["trained"] | None = "trained",
    dynamic: bool = False,
    logits: bool = False,
    half: bool = False,
    force: bool = False,
) -> Exported:
    """Write a finished run's model as ONNX, and its model card beside it.

    Args:
        folder: The run.
        output: File to write, ending in .onnx.
        frame: Height and width of its frames; by default that of the training videos if their view was stated, else
            of the scene in them, or the training size if those differ.
        view: Part of the frame that shows the scene, or None for all of it; by default as stated in training.
        dynamic: Leave the size of the frames open.
        logits: Output scores instead of masks.
        half: Compute in fp16.
        force: Write over existing files.

    Raises:
        UserError: The file would not agree with PyTorch; nothing is written then.

    >>> export_run(Path("runs/pgvcl"), Path("model.onnx"), frame=(1080, 1920)).agreement  # doctest: +SKIP
    0.99998
    """
    run = Run(folder)
    model = run.model()
    if view == "trained":
        frame, view = (frame, None) if dynamic or logits else _trained_view(run, frame)
    validate_export_options(output, frame, view, dynamic=dynamic, logits=logits)
    text, card = render_card(run).encode(), card_path(output)
    require_new_or_same(card, text, force)
    shape = ExportFormat(None if dynamic else frame or run.scene_size or model.size, view, logits, half)
    file = to_onnx(model, shape, run_origin(run))
    require_new_or_same(output, file, force)
    deployed = DeployedSegmenter(model.segmenter, model.size, shape)
    frames, real = _frames(run, deployed)
    agreement = _agreement(file, deployed, frames)
    if agreement < MIN_AGREEMENT[shape.precision]:
        fix = "leave --fp16 out" if half else "please report this mistake in Suture or ONNX Runtime"
        raise UserError(
            f"{output} was not written: its masks agree with PyTorch's in {agreement:.3%} of the pixels, expected "
            f"{MIN_AGREEMENT[shape.precision]:.1%}; {fix}."
        )
    with _write_errors(output):
        for path in (output, card):
            remove_leftovers_of(path)
        write_bytes(card, text)
        write_bytes(output, file)  # last: with it, the export is done
    return Exported(output, card, shape, agreement, sum(map(len, frames)), real)


def _trained_view(run: Run, frame: tuple[int, int] | None) -> tuple[tuple[int, int] | None, View | None]:
    """Size of the frames and their view as stated in training; no view for frames of another size."""
    weights = run.folder / WEIGHTS
    trained = read_training_view(read_training_notes(weights)["view"], str(weights))
    if trained == "auto" or trained.view is None or trained.size is None or frame not in (None, trained.size):
        return frame, None
    height, width = trained.size
    return (height, width), trained.view


def run_origin(run: Run) -> dict[str, Any]:
    """Origin of a run's model, as it is written into an exported file."""
    weights = run.folder / WEIGHTS
    return {
        "name": run.name,
        "dataset": run.dataset_name,
        "method": run.method_name,
        "seed": run.seed,
        "suture": run.environment["suture"],
        "commit": run.environment["commit"],
        "sha256": fingerprint(weights)["sha256"],
        **read_training_notes(weights),
    }


def to_onnx(model: Model, shape: ExportFormat, origin: Mapping[str, Any] | None = None) -> bytes:
    """Return the bytes of an ONNX file, with the class table and `origin` in its metadata.

    >>> len(to_onnx(Model.load(Path("runs/pgvcl")), ExportFormat(frame=(1080, 1920))))  # doctest: +SKIP
    63843021
    """
    import onnx

    segmenter = model.segmenter
    about = {
        "format": ONNX_FORMAT,
        "classes": [{"name": n, "color": list(c)} for n, c in zip(model.names, model.colors, strict=True)],
        "size": list(model.size),
        "multiple": segmenter.multiple,
        "kind": "fixed" if shape.frame else "dynamic",
        "view": shape.view.to_json() if shape.view else None,
        "output": shape.output,
        "precision": shape.precision,
        "run": {"view": "auto", "videos_by": "folder"} | dict(origin or {}),
    }
    if shape.half:
        segmenter = deepcopy(segmenter).half()
    proto = _trace(DeployedSegmenter(segmenter, model.size, shape))
    _remove_paths(proto)
    onnx.helper.set_model_props(proto, {"suture": json.dumps(about, ensure_ascii=False)})
    onnx.checker.check_model(proto, full_check=True)
    return proto.SerializeToString()


def write_card(folder: Path, output: Path, *, force: bool = False) -> None:
    """Write the model card of a finished run alone."""
    require_outside_dataset(output)
    text = render_card(Run(folder)).encode()
    require_new_or_same(output, text, force)
    with _write_errors(output):
        write_bytes(output, text)


@contextmanager
def _write_errors(output: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{output} cannot be written ({error.strerror or error}): give another --output.") from error


def _trace(deployed: DeployedSegmenter) -> Any:
    """Trace the graph of a deployed segmenter, as an `onnx.ModelProto`."""
    segmenter, frame = deployed.segmenter, deployed.shape.frame
    dynamic = None
    if frame is None:
        multiple, frame = segmenter.multiple, _example_sizes(deployed)[1]
        rows, columns = (torch.export.Dim(name) for name in ("rows", "columns"))
        dynamic = {"frames": {0: torch.export.Dim("batch"), 1: multiple * rows, 2: multiple * columns}}
    # A batch of one would be taken for the only possible one.
    example = torch.zeros(2 if dynamic else 1, *frame, 3, dtype=torch.uint8)
    with _quiet(), torch.no_grad():
        try:
            graph = torch.export.export(deployed, (example,), dynamic_shapes=dynamic, strict=False)
            program = torch.onnx.export(
                graph,
                dynamo=True,
                opset_version=OPSET,
                input_names=["frames"],
                output_names=[deployed.shape.output],
                verbose=False,
            )
        except Exception as error:
            raise _no_graph(deployed, error) from error
    assert program is not None
    return program.model_proto


def _no_graph(deployed: DeployedSegmenter, error: Exception) -> UserError:
    network = f"{deployed.segmenter.architecture} with {deployed.segmenter.encoder_name}"
    if deployed.shape.frame is None:
        return UserError(f"{network} has no graph for frames of any size: leave --dynamic out.")
    return UserError(f"{network} cannot be written as ONNX ({type(error).__name__}): choose another architecture.")


def _example_sizes(deployed: DeployedSegmenter) -> list[tuple[int, int]]:
    """Two sizes that a dynamic file takes: the training size made a multiple, and a larger one."""
    multiple = deployed.segmenter.multiple
    height, width = (-(-side // multiple) * multiple for side in deployed.size)
    return [(height, width), (height + multiple, width + 2 * multiple)]


def _remove_paths(proto: Any) -> None:
    """Remove the exporter's notes, which name files of this machine."""
    del proto.metadata_props[:]
    graph = proto.graph
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""


def _agreement(file: bytes, deployed: DeployedSegmenter, batches: Sequence[np.ndarray]) -> float:
    """Share of pixels to which ONNX Runtime gives the same class as PyTorch."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    same = pixels = 0
    try:
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        outputs = [_class_ids(session.run(None, {"frames": frames})[0]) for frames in batches]
    except Exception as error:  # such as a graph that holds for one size only
        raise _no_graph(deployed, error) from error
    for frames, ids in zip(batches, outputs, strict=True):
        with torch.inference_mode():
            expected = _class_ids(deployed(torch.from_numpy(frames)).numpy())
        counted = expected != IGNORE
        same += int((ids == expected)[counted].sum())
        pixels += int(counted.sum())
    return same / pixels


def _class_ids(output: np.ndarray) -> np.ndarray:
    return output.argmax(1) if output.ndim == 4 else output


def _frames(run: Run, deployed: DeployedSegmenter) -> tuple[list[np.ndarray], bool]:
    """Batches of frames to compare on: of the run's videos (True), or generated if those cannot be read (False)."""
    try:
        scenes, real = list(_run_scenes(run, whole=deployed.shape.view is not None)), True
    except (UserError, OSError):
        settings = SyntheticSettings(cases=CHECKED_FRAMES, frames=4, shots=1)
        scenes, real = [frame for video in plan_videos(settings) for frame, _ in render_video(video, [2])], False
    if deployed.shape.frame:
        return [resize_frame(scene, deployed.shape.frame)[None] for scene in scenes], real
    return [np.stack([resize_frame(scene, size) for scene in scenes]) for size in _example_sizes(deployed)], real


def _run_scenes(run: Run, whole: bool) -> Iterator[np.ndarray]:
    """Read a frame of a few videos, whole or cut to the view; of test videos first."""
    data = run.config.data
    dataset = load_dataset(data.root, data.source, **data.options)
    videos = [video for split in ("test", "val", "train") for video in dataset.split(split) if video.usable]
    for video in (videos[place * len(videos) // CHECKED_FRAMES] for place in range(min(CHECKED_FRAMES, len(videos)))):
        frame = video.read(video.usable[len(video.usable) // 2])
        yield frame if whole else video.view.crop(frame)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's messages to its developers."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
