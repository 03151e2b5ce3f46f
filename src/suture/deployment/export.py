"""A finished model as one ONNX file that any system can load without Suture: frames in, class ids out."""

import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from suture.core.errors import UserError
from suture.core.io import replacing, write_text
from suture.data.classes import IGNORE
from suture.data.datasets import load_dataset
from suture.data.datasets.folder import require_outside_dataset
from suture.data.read_scenes import resize_image
from suture.data.synthetic.render_video import render_video
from suture.data.synthetic.scenario import SyntheticSettings, plan_videos
from suture.data.view import View
from suture.deployment.model_card import Papers, card_of
from suture.models.model import Model
from suture.models.model_files import WEIGHTS, fingerprint
from suture.models.segmenter import Segmenter
from suture.prediction.networks import ONNX_FORMAT, noted_training
from suture.prediction.options import require_new_or_same, validate_export_options
from suture.prediction.preprocess import to_class_ids, to_network

OPSET = 18
BARS = {"fp32": 0.999, "fp16": 0.995}
"""The share of pixels that has to be of the same class as in PyTorch."""
_CHECKED = 4  # frames


@dataclass(frozen=True)
class Shape:
    """What an exported file takes and gives."""

    frame: tuple[int, int] | None
    """Height and width of its frames; none is any size, at which the network then runs."""
    view: View | None = None
    """The rectangle of the frame that the network sees; the rest of the mask is `IGNORE`."""
    logits: bool = False
    """Whether it gives the network's scores of all classes instead of the mask."""
    half: bool = False
    """Whether the network computes in fp16."""

    @property
    def output(self) -> str:
        return "logits" if self.logits else "masks"

    @property
    def precision(self) -> str:
        return "fp16" if self.half else "fp32"

    def __str__(self) -> str:
        size = f"1×{self.frame[0]}×{self.frame[1]}" if self.frame else "B×H×W"
        given = "logits, float32" if self.logits else f"masks, uint8 {size}"
        return f"frames, uint8 {size}×3 → {given}; {self.precision}, opset {OPSET}"


class Exported(NamedTuple):
    """An exported file, and how it agrees with PyTorch."""

    path: Path
    card: Path
    shape: Shape
    agreement: float
    """Share of pixels of the same class; PyTorch computes in fp32."""
    checked: int
    """Frames that were compared."""
    real: bool
    """Whether they are of the run's own videos; else they were generated."""


class Deployed(nn.Module):
    """A segmenter with all that stands around it: frames (B H W 3, uint8) in, class ids (B H W, uint8) out."""

    def __init__(self, segmenter: Segmenter, size: tuple[int, int], shape: Shape) -> None:
        super().__init__()
        self.segmenter = segmenter
        self.size = size
        self.shape = shape

    def forward(self, frames: Tensor) -> Tensor:
        shape, view = self.shape, self.shape.view
        frames, around = frames.float(), None  # at once, as TensorRT does nothing else with bytes
        if shape.frame and view:
            height, width = shape.frame
            around = view.x, width - view.x - view.width, view.y, height - view.y - view.height
            frames = frames[:, view.y : view.y + view.height, view.x : view.x + view.width]
        seen = (frames.shape[1], frames.shape[2])
        images = to_network(frames, self.size if shape.frame else seen)
        scores = self.segmenter(images.to(self.segmenter.mean.dtype)).float()
        if shape.logits:
            return scores
        # Between pixels probabilities are averaged, as in the evaluation; the best class of a pixel itself needs none.
        return to_class_ids(scores if seen == scores.shape[-2:] else _softmax(scores), seen, around)


def _softmax(scores: Tensor) -> Tensor:
    """Probabilities over the classes; ONNX Runtime's own Softmax takes ten times as long on this axis."""
    powers = (scores - scores.amax(1, keepdim=True)).exp()
    return powers / powers.sum(1, keepdim=True)


def export_run(
    folder: Path,
    output: Path,
    *,
    frame: tuple[int, int] | None = None,
    view: View | None = None,
    dynamic: bool = False,
    logits: bool = False,
    half: bool = False,
    force: bool = False,
) -> Exported:
    """Write a finished run's model as ONNX, and its card beside it; nothing is written that disagrees with PyTorch.

    `frame` (height, width) is by default the size of the scene in the run's videos, or where those differ the training
    size; `dynamic` leaves it open, and the network then runs at the size of the frame.

    >>> export_run(Path("runs/pgvcl"), Path("model.onnx"), frame=(1080, 1920)).agreement  # doctest: +SKIP
    0.99998
    """
    validate_export_options(output, frame, view, dynamic=dynamic, force=force)
    papers, model = Papers.read(folder), Model.load(folder)
    shape = Shape(None if dynamic else frame or papers.frame or model.size, view, logits, half)
    card, text = card_of(output), papers.card()
    require_new_or_same(card, text, force)
    weights = folder / WEIGHTS
    noted = {"sha256": fingerprint(weights)["sha256"]} | noted_training(weights)
    file = to_onnx(model, shape, papers.origin() | noted)
    deployed = Deployed(model.segmenter, model.size, shape)
    frames, real = _frames(papers, deployed)
    agreement = _agreement(file, deployed, frames)
    if agreement < BARS[shape.precision]:
        mend = "leave --fp16 out" if shape.half else "this is a mistake in Suture or in ONNX Runtime, please report it"
        raise UserError(
            f"{output} was not written: its masks agree with PyTorch's in {agreement:.3%} of the pixels, expected "
            f"{BARS[shape.precision]:.1%}; {mend}."
        )
    with _told(output):
        with replacing(output) as temporary:
            temporary.write_bytes(file)
        write_text(card, text)
    return Exported(output, card, shape, agreement, sum(map(len, frames)), real)


def to_onnx(model: Model, shape: Shape, origin: Mapping[str, Any] | None = None) -> bytes:
    """A model as the bytes of an ONNX file, its class table and `origin` in the metadata.

    >>> len(to_onnx(Model.load(Path("runs/pgvcl")), Shape(frame=(1080, 1920))))  # doctest: +SKIP
    63843021
    """
    try:
        import onnx
        import onnxscript  # noqa: F401  torch's exporter is made of it
    except ImportError as error:
        raise UserError(
            f"Exporting needs {error.name}, which is not installed: pip install onnx onnxscript."
        ) from error
    segmenter = model.segmenter
    about = {
        "format": ONNX_FORMAT,
        "classes": [{"name": n, "color": list(c)} for n, c in zip(model.names, model.colors, strict=True)],
        "size": list(model.size),
        "multiple": segmenter.multiple,
        "kind": "fixed" if shape.frame else "dynamic",
        "view": shape.view.to_json()["rect"] if shape.view else None,
        "output": shape.output,
        "precision": shape.precision,
        "run": dict(origin or {}),
    }
    if shape.half:
        segmenter = deepcopy(segmenter).half()
    proto = _traced(Deployed(segmenter, model.size, shape))
    _forget_machine(proto)
    onnx.helper.set_model_props(proto, {"suture": json.dumps(about, ensure_ascii=False)})
    onnx.checker.check_model(proto, full_check=True)
    return proto.SerializeToString()


def write_card(folder: Path, output: Path, *, force: bool = False) -> None:
    """Write the card of a finished run's model alone."""
    require_outside_dataset(output)
    text = Papers.read(folder).card()
    require_new_or_same(output, text, force)
    with _told(output):
        write_text(output, text)


@contextmanager
def _told(output: Path) -> Iterator[None]:
    """A full disk, or a place that may not be written to, in one sentence."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{output} cannot be written ({error.strerror or error}): give another --output, with room, where you may "
            "write."
        ) from error


def _traced(deployed: Deployed) -> Any:
    """The graph of a deployed segmenter, as an `onnx.ModelProto`."""
    segmenter, frame = deployed.segmenter, deployed.shape.frame
    dynamic = None
    if frame is None:
        multiple, frame = segmenter.multiple, _open_sizes(deployed)[1]
        rows, columns = (torch.export.Dim(name) for name in ("rows", "columns"))
        dynamic = {"frames": {0: torch.export.Dim("batch"), 1: multiple * rows, 2: multiple * columns}}
    # A batch of one would be taken for the only one there can be.
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


def _no_graph(deployed: Deployed, error: Exception) -> UserError:
    segmenter = deployed.segmenter
    which = f"{segmenter.architecture} with {segmenter.encoder_name}"
    if deployed.shape.frame is None:
        return UserError(f"{which} has no graph for frames of any size: leave --dynamic out.")
    return UserError(f"{which} cannot be written as ONNX ({type(error).__name__}): choose another architecture.")


def _open_sizes(deployed: Deployed) -> list[tuple[int, int]]:
    """Two sizes that a dynamic file takes: the training size, its sides made multiples, and a larger one."""
    multiple = deployed.segmenter.multiple
    height, width = (-(-side // multiple) * multiple for side in deployed.size)
    return [(height, width), (height + multiple, width + 2 * multiple)]


def _forget_machine(proto: Any) -> None:
    """Take out what the exporter notes of the code that it traced: it names files of this machine."""
    del proto.metadata_props[:]
    graph = proto.graph
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""


def _agreement(file: bytes, deployed: Deployed, batches: Sequence[np.ndarray]) -> float:
    """The share of pixels that ONNX Runtime gives the same class as PyTorch."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what goes wrong is told below
    same = pixels = 0
    try:
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        found = [_class_ids(session.run(None, {"frames": frames})[0]) for frames in batches]
    except Exception as error:  # such as a graph that was traced for any size, and holds for one only
        raise _no_graph(deployed, error) from error
    for frames, ids in zip(batches, found, strict=True):
        with torch.inference_mode():
            expected = _class_ids(deployed(torch.from_numpy(frames)).numpy())
        seen = expected != IGNORE
        same += int((ids == expected)[seen].sum())
        pixels += int(seen.sum())
    return same / pixels


def _class_ids(output: np.ndarray) -> np.ndarray:
    return output.argmax(1) if output.ndim == 4 else output


def _frames(papers: Papers, deployed: Deployed) -> tuple[list[np.ndarray], bool]:
    """Batches of frames to compare on: of the run's videos, or generated ones where those cannot be read."""
    try:
        scenes, real = list(_scenes_of_run(papers, whole=deployed.shape.view is not None)), True
    except (UserError, OSError):
        settings = SyntheticSettings(cases=_CHECKED, frames=4, shots=1)
        scenes, real = [frame for video in plan_videos(settings) for frame, _ in render_video(video, [2])], False
    if deployed.shape.frame:
        return [resize_image(scene, deployed.shape.frame)[None] for scene in scenes], real
    return [np.stack([resize_image(scene, size) for scene in scenes]) for size in _open_sizes(deployed)], real


def _scenes_of_run(papers: Papers, whole: bool) -> Iterator[np.ndarray]:
    """A frame of each of a few videos, whole or what the view shows of it; those that were not trained on first."""
    said = papers.config["data"]
    dataset = load_dataset(papers.folder / said["root"], said["source"], **said["options"])
    videos = [video for split in ("test", "val", "train") for video in dataset.split(split) if video.usable]
    for video in (videos[place * len(videos) // _CHECKED] for place in range(min(_CHECKED, len(videos)))):
        frame = video.read(video.usable[len(video.usable) // 2])
        yield frame if whole else video.view.crop(frame)


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter talks to its developers."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
