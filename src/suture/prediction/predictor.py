"""The predictor: frames in, masks out."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from suture.core.errors import UserError
from suture.core.settings import validate_scales
from suture.core.text import listed
from suture.data.classes import IGNORE, ClassTable
from suture.data.overlay import Overlay, OverlayStyle
from suture.data.video import YuvPlanes
from suture.data.view import View
from suture.data.yuv import YuvToRgb, frame_size
from suture.models.cuda_graph import CudaGraph
from suture.models.inference import (
    input_size,
    predict_probabilities,
    resize_frame,
    resize_matrices,
    to_class_ids,
    to_images,
)
from suture.prediction.fast.gpu import Gpu
from suture.prediction.fast.gpu_overlay import GpuOverlay, class_counts
from suture.prediction.fast.planes_to_rgb import planes_to_rgb
from suture.prediction.fast.process_writer import ProcessWriter, SharedBatch, can_start
from suture.prediction.input_clip import fill_batch
from suture.prediction.onnx_network import OnnxNetwork
from suture.prediction.open_network import open_network
from suture.prediction.smoother import Smoother

T = TypeVar("T")
PAINTED_TOGETHER = 4
"""Frames that a GPU paints at once: their intermediate values stay in its cache."""
MAX_CACHED_TENSORS = 256
"""Tensors for one frame size and view that are kept."""


class Prediction(NamedTuple):
    """Prediction of one frame."""

    mask: np.ndarray
    """Class ids (H, W), uint8; `IGNORE` outside the view."""
    confidence: float
    """Mean probability of the chosen classes; NaN for a model that returns decisions only."""
    entropy: float
    """Mean entropy of the probabilities: 0 sure of one class, 1 all alike."""


class PreparedBatch(NamedTuple):
    """Whole frames of one size on their way to the network."""

    frames: Tensor
    """(B, H, W, 3), uint8; or their planes for a GPU."""
    view: View
    memory: SharedBatch | None = None
    """Shared memory for the results of a GPU."""
    colours: YuvToRgb | None = None
    """Conversion of planes to RGB."""


class Predictor:
    """A finished model that predicts masks.

    Args:
        model: Run folder, `model.safetensors` with its `model.json` beside it, or ONNX file.
        device: `auto` (a GPU if there is one), `cpu`, `cuda`, `cuda:1` or `mps`.
        flip: Average with the mirrored frame.
        scales: Average over these sizes of the frame.
        window: Cut large frames into overlapping windows of the training size instead of shrinking them.

    >>> predictor = Predictor("runs/hernia-stitch-0")  # doctest: +SKIP
    >>> mask = predictor(frame)  # doctest: +SKIP
    >>> mask.shape == frame.shape[:2], predictor.classes.names[mask[0, 0]]  # doctest: +SKIP
    (True, 'liver')
    """

    def __init__(
        self,
        model: str | Path,
        device: str = "auto",
        *,
        flip: bool = False,
        scales: Sequence[float] = (1.0,),
        window: bool = False,
    ) -> None:
        validate_scales(scales)
        self.network = open_network(Path(model), device)
        if (flip or window or tuple(scales) != (1.0,)) and not (self.network.any_size and self.network.scored):
            raise UserError(f"{model} takes no flip, scales or window: export it with --dynamic and --logits.")
        self.flip = flip
        self._flip_order = self.classes.flip_order(flip)
        self.scales = tuple(scales)
        self.window = window
        cuda = self.device.type == "cuda"
        self._autocast = torch.bfloat16 if cuda and torch.cuda.is_bf16_supported() else None
        self.gpu = Gpu(self.device) if cuda else None
        self._graph = CudaGraph(max_shapes=4)
        self._output_device = self.device if cuda else torch.device("cpu")
        self._cache: dict[Any, Any] = {}

    @property
    def classes(self) -> ClassTable:
        """Names and colours of the classes, in the order of the ids in a mask."""
        return self.network.classes

    @property
    def device(self) -> torch.device:
        return self.network.device

    @cached_property
    def process_writer(self) -> ProcessWriter | None:
        """Writer beside a GPU; None on a CPU, or if no processes can be started."""
        return ProcessWriter(self.gpu) if self.gpu and can_start() else None

    @property
    def runs_parallel(self) -> bool:
        """True if several batches, each on one core, are faster than one on all cores: PyTorch on a CPU."""
        return self.gpu is None and self.device.type == "cpu" and not isinstance(self.network.module, OnnxNetwork)

    def require_scores(self) -> None:
        """Raise if the model returns class ids only."""
        if not self.network.scored:
            raise UserError(f"{self.network.identity['name']} has no probabilities: export it with --logits.")

    def __call__(self, frames: np.ndarray, view: View | Literal["trained"] | None = "trained") -> np.ndarray:
        """Predict the masks of one frame (H, W, 3) or of several (B, H, W, 3), RGB, uint8.

        Args:
            frames: The frames.
            view: Part that shows the scene, or None for all of it; by default as stated in training for this size.

        Returns:
            Class ids (H, W) or (B, H, W), uint8; `IGNORE` (255) outside the view, if one is given.
        """
        masks = [prediction.mask for prediction in self.predict(frames, view)]
        return np.stack(masks) if frames.ndim == 4 else masks[0]

    def predict(self, frames: np.ndarray, view: View | Literal["trained"] | None = "trained") -> list[Prediction]:
        """Predict masks with their confidence and entropy, of one frame or of several, as calling does."""
        if view == "trained":
            setting = self.network.view
            view = None if setting == "auto" else setting.of(np.shape(frames)[-3:-1])
        return list(self.begin(self.prepare(frames, view)))

    @torch.inference_mode()
    def probabilities(self, frames: np.ndarray) -> np.ndarray:
        """Predict class probabilities, float32: (C, H, W) of one frame, (B, C, H, W) of several."""
        self.require_scores()
        prepared = self.prepare(frames).frames
        small = self._probabilities(prepared.to(self.device))
        result = F.interpolate(small, prepared.shape[1:3], mode="bilinear", align_corners=False).cpu().numpy()
        return result if frames.ndim == 4 else result[0]

    def prepare(
        self,
        frames: np.ndarray | Sequence[np.ndarray] | Sequence[YuvPlanes],
        view: View | None = None,
        length: int = 0,
        memory: SharedBatch | None = None,
    ) -> PreparedBatch:
        """Make frames of one size ready for the network; another thread may do this for the next frames.

        Args:
            frames: One frame or several, RGB; or planes for a GPU, all with the same colours.
            view: Part that shows the scene; None is the whole frame.
            length: For a GPU, repeat the last frame up to this length: each length is a CUDA graph of its own.
            memory: Where the frames of a GPU and its results are put.
        """
        batch: list[Any] = list(frames) if isinstance(frames, Sequence) or np.ndim(frames) == 4 else [frames]
        colours = batch[0].colours if batch and isinstance(batch[0], YuvPlanes) else None
        if colours is None:
            _validate_frames(batch)
        height, width = frame_size(batch[0].shape, planes=colours is not None)
        rows, columns = self.network.size
        if self.network.crops and (view or height * columns != width * rows):
            raise UserError(
                f"{self.network.identity['name']} crops its view itself: give it whole frames of the shape "
                f"{columns}×{rows} and no view, or export it for others with --frame and --view."
            )
        view = view.within(width, height) if view else View(0, 0, width, height)
        if self.gpu is None:
            return PreparedBatch(torch.from_numpy(np.stack(batch)), view)
        shape = max(len(batch), length), *batch[0].shape
        pinned = self.gpu.memory(shape) if memory is None else torch.from_numpy(memory.pixels.shaped(shape))
        fill_batch(pinned.numpy(), batch)
        return PreparedBatch(pinned, view, memory, colours)

    @torch.inference_mode()
    def begin(
        self, prepared: PreparedBatch, smoother: Smoother | None = None, paint: OverlayStyle | None = None
    ) -> "PendingBatch":
        """Start the network on prepared frames; the result waits for it.

        Args:
            prepared: Frames of `prepare`.
            smoother: Smoother of their video.
            paint: Look of the overlays that a GPU paints too.
        """
        if self.gpu is None:
            return PendingBatch(
                *(one.cpu() for one in self._measure(prepared.frames, prepared.view, smoother=smoother))
            )
        with self.gpu.computing():
            frames = self.gpu.upload(prepared.frames)
            options = prepared.view, paint, prepared.colours
            measured = None if smoother else self._graph(self._measure, frames, *options)
            if measured is None:
                measured = self._measure(frames, *options, smoother)
            into: list[Tensor | None] = [None] * len(measured)
            if (memory := prepared.memory) is not None:
                into[1] = torch.from_numpy(memory.masks.shaped(measured[1].shape))
                into[3:] = [torch.from_numpy(memory.planes.shaped(one.shape)) for one in measured[3:]]
            (certainty, masks, *more), ready = self.gpu.download(measured, into)
            return PendingBatch(certainty, masks, ready, *more)

    def _measure(
        self,
        frames: Tensor,
        view: View,
        paint: OverlayStyle | None = None,
        colours: YuvToRgb | None = None,
        smoother: Smoother | None = None,
    ) -> list[Tensor]:
        """Compute certainty and masks of whole frames; on a GPU pixels of each class, and overlays if wanted, too."""
        if colours is not None:
            frames = planes_to_rgb(frames, colours)
        _, height, width, _ = frames.shape
        right, bottom = view.x + view.width, view.y + view.height
        scenes, size = frames[:, view.y : bottom, view.x : right], (view.height, view.width)
        if self.gpu is not None:
            # Kept for a CUDA graph, which reads them after others have taken their place in the cache of matrices.
            # By the frames' device: `self.device` may lack its number, and would have others.
            network_size = input_size(size, self.network.size, self.window)
            self._cached(("resize", size), lambda: resize_matrices(size, network_size, frames.device))
        if self.network.scored:
            probabilities = self._probabilities(scenes, smoother)
            ids = to_class_ids(probabilities, size)
            certainty = self._certainty(probabilities, self._inside((height, width), view, probabilities.shape[2:]))
        else:
            ids = self._decisions(scenes)
            certainty = torch.full((len(ids), 2), torch.nan)
        around = view.x, width - right, view.y, height - bottom
        masks = F.pad(ids, around, value=IGNORE) if any(around) else ids
        if view.circle:
            masks = masks.masked_fill(self._outside((height, width), view), IGNORE)
        if self.gpu is None:
            return [certainty, masks]
        measured = [certainty, masks, class_counts(masks, len(self.classes))]
        if paint:
            overlay = self._cached(
                ("overlay", height, width, paint),
                lambda: GpuOverlay(Overlay(self.classes, width, height, paint), self.device),
            )
            parts = zip(frames.split(PAINTED_TOGETHER), masks.split(PAINTED_TOGETHER), strict=True)
            measured.append(torch.cat([overlay(*part) for part in parts]))
        return measured

    def _decisions(self, scenes: Tensor) -> Tensor:
        """Class ids of an ONNX file without scores, at the size of the scenes."""
        assert isinstance(self.network.module, OnnxNetwork)
        size = scenes.shape[1:3]
        if not self.network.any_size and size != self.network.size:
            scenes = torch.from_numpy(np.stack([resize_frame(scene, self.network.size) for scene in scenes.numpy()]))
        ids = self.network.module.run(scenes)
        return ids if ids.shape[1:] == size else F.interpolate(ids[:, None], size, mode="nearest-exact")[:, 0]

    def _probabilities(self, scenes: Tensor, smoother: Smoother | None = None) -> Tensor:
        """Class probabilities (B, C, h, w) of scenes, at the network's input size."""
        scenes = scenes.to(self.device)
        probabilities = predict_probabilities(
            self.network.module,
            scenes,
            self.network.size,
            flip=self._flip_order,
            scales=self.scales,
            window=self.window,
            autocast=self._autocast,
        )
        if smoother is not None:
            probabilities = smoother(to_images(scenes, probabilities.shape[2:]), probabilities)
        return probabilities.to(self._output_device)

    def _inside(self, size: tuple[int, int], view: View, shape: Sequence[int]) -> Tensor:
        """Share of each of the network's pixels (h, w) inside the view: a circle leaves corners out."""

        def make() -> Tensor:
            mask = view.crop(view.mask(*size[::-1])).astype(np.float32)
            return torch.from_numpy(resize_frame(mask, (shape[0], shape[1]))).to(self._output_device)

        return self._cached(("inside", size, view, tuple(shape)), make)

    def _outside(self, size: tuple[int, int], view: View) -> Tensor:
        """Pixels of a frame outside the view (H, W), bool."""
        return self._cached(
            ("outside", size, view), lambda: torch.from_numpy(~view.mask(*size[::-1])).to(self._output_device)
        )

    def _cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """Make a tensor once for frames of one kind. The first ones are kept forever: CUDA graphs read them."""
        if key in self._cache:
            kept: T = self._cache[key]
            return kept
        made = make()
        if len(self._cache) < MAX_CACHED_TENSORS:
            self._cache[key] = made
        return made

    def _certainty(self, probabilities: Tensor, inside: Tensor) -> Tensor:
        """Confidence and entropy of each image (B, 2), averaged inside the view."""
        entropy = torch.special.entr(probabilities).sum(1) / np.log(max(len(self.classes), 2))
        values = torch.stack([probabilities.amax(1), entropy], 1)
        weight = inside.expand(len(probabilities), *inside.shape[-2:])[:, None]
        return (values * weight).sum((2, 3)) / weight.sum((2, 3)).clamp(min=1e-6)


@dataclass(frozen=True)
class PendingBatch:
    """Predictions of a batch that the device may still be computing; any thread may ask for them."""

    certainty: Tensor
    """Confidence and entropy (B, 2)."""
    masks: Tensor
    """(B, H, W), uint8."""
    ready: Any = None
    """CUDA event after which they are complete."""
    counts: Tensor | None = None
    """Pixels of each class (B, C), from a GPU."""
    planes: Tensor | None = None
    """Planes of the overlays, from a GPU."""

    def __len__(self) -> int:
        return len(self.masks)

    def __iter__(self) -> Iterator[Prediction]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, place: int) -> Prediction:
        """Wait for the prediction of one frame."""
        if not 0 <= place < len(self):
            raise IndexError(place)
        self.wait()
        mask = self.masks[place].numpy()
        # A copy, because the memory of a GPU's results is needed for the next frames.
        return Prediction(mask if self.counts is None else mask.copy(), *self.certainty[place].tolist())

    @property
    def measured(self) -> Iterator[tuple[list[float], np.ndarray]]:
        """Certainty and pixels of each class of the frames, from a GPU."""
        assert self.counts is not None
        self.wait()
        return zip(self.certainty.tolist(), self.counts.numpy(), strict=True)

    def wait(self) -> None:
        """Wait until the device is done."""
        if self.ready is not None:
            self.ready.synchronize()


def _validate_frames(frames: Sequence[Any]) -> None:
    arrays = [frame for frame in frames if isinstance(frame, np.ndarray) and frame.dtype == np.uint8]
    shapes = {frame.shape for frame in arrays}
    if len(arrays) != len(frames) or len(shapes) != 1 or (shape := shapes.pop())[2:] != (3,) or 0 in shape:
        kinds = {getattr(frame, "shape", type(frame).__name__) for frame in frames}
        raise UserError(
            f"The frames are {listed([str(kind) for kind in kinds])}, expected NumPy arrays of one size: RGB, uint8, "
            "H×W×3 (see suture.data.images.read_image)."
        )
