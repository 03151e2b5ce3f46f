"""The predictor: frames in, masks out, with whatever a finished model was saved as."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import cv2
import numpy as np
import torch
from torch import Tensor

from suture.core.errors import UserError
from suture.core.settings import validate_scales
from suture.data.classes import IGNORE, ClassTable
from suture.data.overlay import Overlay
from suture.data.read_scenes import resize_image
from suture.data.video import YuvPlanes
from suture.data.view import View
from suture.data.yuv import YuvToRgb, frame_size
from suture.models.inference import probabilities
from suture.prediction.fast.gpu import Gpu
from suture.prediction.fast.gpu_overlay import Drawing, class_counts
from suture.prediction.fast.recorded import Recorded
from suture.prediction.fast.writer_pool import Place, Writer, can_start
from suture.prediction.inputs import fill
from suture.prediction.networks import OnnxNetwork, open_network
from suture.prediction.preprocess import from_planes, resizing, to_class_ids, to_network
from suture.prediction.sliding_window import by_windows
from suture.prediction.smoothing import Smoother

T = TypeVar("T")
_DRAWN = 4
"""Frames that are drawn at once: what is in between stays in a GPU's cache."""
_KEPT = 256
"""Tensors for frames of one size and view that are kept; those of further ones are made again and again."""


class Prediction(NamedTuple):
    """What a model says of one frame."""

    mask: np.ndarray
    """Class ids, uint8, H W; `IGNORE` outside the view."""
    confidence: float
    """The mean over the pixels of the probability of their class; NaN for a model that gives decisions only."""
    entropy: float
    """The mean over the pixels of how undecided the model is: 0 sure of a class, 1 all classes alike."""


class Prepared(NamedTuple):
    """Frames of one size on their way to the network."""

    frames: Tensor
    """B H W 3, uint8: whole for a GPU, or its planes; for a CPU what the view shows, already at the network's size."""
    size: tuple[int, int]
    """Height and width of the whole frames."""
    view: View
    place: Place | None = None
    """Memory for what a GPU makes of them, where another process is to see it."""
    colours: YuvToRgb | None = None
    """By what the GPU turns planes into RGB."""


class Predictor:
    """A finished model: `model` is a run folder, a `model.safetensors` (its `model.json` beside it), or an ONNX file.

    - `device`: `auto` takes a GPU where there is one; or `cpu`, `cuda`, `cuda:1`, `mps`.
    - `flip`, `scales`: average over mirrored and resized versions of each frame.
    - `window`: cut large frames into overlapping windows of the training size instead of shrinking them.

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
        if tuple(scales) != (1.0,) and not self.network.any_size:
            raise UserError(f"{model} has a fixed size, so that scales cannot be used: export it with --dynamic.")
        if self.network.cuts and (flip or window):
            raise UserError(
                f"{model} cuts its view out of whole frames itself, so that flip and window cannot be used: export it "
                "without --view."
            )
        self.flip = flip
        self.scales = tuple(scales)
        self.window = window
        cuda = self.device.type == "cuda"
        self._autocast = torch.bfloat16 if cuda and torch.cuda.is_bf16_supported() else None
        self.gpu = Gpu(self.device) if cuda else None
        self._recorded = Recorded(self._measure)
        self._kept: dict[Any, Any] = {}

    @property
    def classes(self) -> ClassTable:
        """Names and colours of the classes, in the order of the ids in a mask."""
        return self.network.classes

    @property
    def device(self) -> torch.device:
        return self.network.device

    @cached_property
    def writer(self) -> Writer | None:
        """The processes that make files of what a GPU predicts; on a CPU, or where none can start, this one does."""
        return Writer(self.gpu) if self.gpu and can_start() else None

    @property
    def side_by_side(self) -> bool:
        """Whether several batches at once, each on one core, are faster than one on all cores: PyTorch on a CPU."""
        return self.gpu is None and self.device.type == "cpu" and not isinstance(self.network.module, OnnxNetwork)

    def __call__(self, frames: np.ndarray, view: View | None = None) -> np.ndarray:
        """The mask of a frame (H W 3 to H W), or of each of several of one size (B H W 3 to B H W).

        Frames are RGB, uint8. Outside the view, if one is given, the mask is `IGNORE` (255).
        """
        masks = [prediction.mask for prediction in self.predict(frames, view)]
        return np.stack(masks) if frames.ndim == 4 else masks[0]

    def predict(self, frames: np.ndarray, view: View | None = None) -> list[Prediction]:
        """Masks with their confidence and entropy, one for each of the frames (or for the one frame)."""
        return list(self.begin(self.prepare(frames, view)))

    @torch.inference_mode()
    def probabilities(self, frames: np.ndarray) -> np.ndarray:
        """The probability of each class at each pixel: H W 3 to C H W, or B H W 3 to B C H W; float32."""
        prepared = self.prepare(frames)
        found = self._scores(prepared.frames.to(self.device))
        native = torch.nn.functional.interpolate(found, prepared.size, mode="bilinear", align_corners=False)
        result = native[:, : len(self.classes)].cpu().numpy()
        return result if frames.ndim == 4 else result[0]

    def prepare(
        self,
        frames: np.ndarray | Sequence[np.ndarray] | Sequence[YuvPlanes],
        view: View | None = None,
        length: int = 0,
        place: Place | None = None,
    ) -> Prepared:
        """Frames of one size made ready for the network; a thread of its own may do this for the next frames.

        On a GPU, where every length of a batch is recorded anew, the last frame is repeated to fill this one. Frames
        and results are put into `place`, if one is given. Only a GPU takes planes, all read by the same colours.
        """
        listed = isinstance(frames, Sequence) and not isinstance(frames, str)
        several: list[Any] = list(frames) if listed or getattr(frames, "ndim", 0) == 4 else [frames]
        colours = several[0].colours if several and isinstance(several[0], YuvPlanes) else None
        if colours is None:
            _refuse_other_than_rgb(several)
        height, width = frame_size(several[0].shape, planes=colours is not None)
        if self.network.cuts:
            self._refuse_other_frames(height, width, view)
        view = view.within(width, height) if view else View(0, 0, width, height)
        if self.gpu is None:  # OpenCV is by far the faster there, and what the training used
            scenes = [view.crop(frame) for frame in several]
            size = self._input_size(scenes[0].shape[:2])
            return Prepared(torch.from_numpy(np.stack([resize_image(s, size) for s in scenes])), (height, width), view)
        shape = max(len(several), length), *several[0].shape
        pinned = self.gpu.memory(shape) if place is None else torch.from_numpy(place.pixels.shaped(shape))
        fill(pinned.numpy(), several)
        return Prepared(pinned, (height, width), view, place, colours)

    @torch.inference_mode()
    def begin(self, prepared: Prepared, smoother: Smoother | None = None, draw: bool = False) -> "Pending":
        """Start the network on prepared frames; the answer is waited for when a prediction is asked for.

        A GPU also draws the overlays, if they are wanted for a video.
        """
        if self.gpu is None:
            found = None if smoother else self._decided(prepared)
            if found is None:
                found = self._scores(prepared.frames.to(self.device), smoother)
            certainty = self._certainty(found, self._inside(prepared.size, prepared.view))
            return Pending(prepared, certainty.cpu(), found.cpu(), None, len(self.classes))
        with self.gpu.at_work():
            frames = self.gpu.upload(prepared.frames)
            if smoother is None:
                measured = self._recorded(frames, prepared.view, draw, prepared.colours)
            else:
                measured = self._measure(frames, prepared.view, draw, prepared.colours, smoother)
            into: list[Tensor | None] = [None] * len(measured)
            if prepared.place is not None:
                into[1] = torch.from_numpy(prepared.place.masks.shaped(measured[1].shape))
                into[3:] = [torch.from_numpy(prepared.place.planes.shaped(one.shape)) for one in measured[3:]]
            (certainty, masks, *more), ready = self.gpu.download(measured, into)
            return Pending(prepared, certainty, masks, ready, len(self.classes), *more)

    def _decided(self, prepared: Prepared) -> Tensor | None:
        """What a file has decided, B h w, where that is the mask as it is: scores of it would only take time."""
        network, view = self.network, prepared.view
        plain = not (network.scored or network.any_size or self.flip or self.window)
        if not plain or prepared.frames.shape[1:3] != (view.height, view.width):
            return None
        assert isinstance(network.module, OnnxNetwork)
        return network.module.masks(prepared.frames)

    def _refuse_other_frames(self, height: int, width: int, view: View | None) -> None:
        """A file with a view of its own takes the frames of one recorder, if resized: in others it lies elsewhere."""
        name, (rows, columns) = self.network.identity["name"], self.network.size
        if view:
            raise UserError(f"{name} cuts its view out of whole frames itself: give it frames without a view.")
        if not self.network.takes(height, width):
            raise UserError(
                f"{name} cuts its view out of frames of {columns}×{rows} pixels, but these have {width}×{height}: "
                "export it for these, with --frame and --view."
            )

    def _measure(
        self,
        frames: Tensor,
        view: View,
        draw: bool,
        colours: YuvToRgb | None = None,
        smoother: Smoother | None = None,
    ) -> list[Tensor]:
        """Of whole frames on the device: certainty, masks, how many pixels each class has, and overlays if wanted."""
        if colours is not None:
            frames = from_planes(frames, colours)
        _, height, width, _ = frames.shape
        right, bottom = view.x + view.width, view.y + view.height
        found = self._scores(frames[:, view.y : bottom, view.x : right], smoother)
        seen = view.height, view.width
        # Those that were just used, by the frames' device: `self.device` may lack its number, and would have others.
        self._keep(("resizing", seen), lambda: resizing(seen, self._input_size(seen), frames.device))
        around = view.x, width - right, view.y, height - bottom
        # One by one: at native resolution the scores of a batch would fill the memory.
        masks = torch.cat([to_class_ids(one[None], seen, around) for one in found])
        if view.circle:
            masks = masks.masked_fill(self._outside((height, width), view), IGNORE)
        certainty = self._certainty(found, self._inside((height, width), view))
        measured = [certainty, masks, class_counts(masks, len(self.classes))]
        if draw:
            drawing = self._drawing(height, width)
            drawn = [drawing(*some) for some in zip(frames.split(_DRAWN), masks.split(_DRAWN), strict=True)]
            measured.append(torch.cat(drawn))
        return measured

    def _scores(self, frames: Tensor, smoother: Smoother | None = None) -> Tensor:
        """The probabilities (B C h w) of frames on the device, at the size that the network looks at."""
        images = to_network(frames, self._input_size(frames.shape[1:3]))
        images = images.contiguous(memory_format=torch.channels_last)
        found = (
            by_windows(self._probabilities, images, self.network.size) if self.window else self._probabilities(images)
        )
        return smoother(images, found) if smoother else found

    def _probabilities(self, images: Tensor) -> Tensor:
        return probabilities(self.network.module, images, flip=self.flip, scales=self.scales, autocast=self._autocast)

    def _input_size(self, seen: Sequence[int]) -> tuple[int, int]:
        """The size at which the network looks at what is `seen` (height, width)."""
        height, width = self.network.size
        return (max(height, seen[0]), max(width, seen[1])) if self.window else (height, width)

    def _inside(self, size: tuple[int, int], view: View) -> Tensor:
        """Which part of each of the network's pixels lies inside the view (h w): a circle leaves corners out."""

        def make() -> Tensor:
            mask = view.crop(_view_mask(view, size)).astype(np.float32)
            return torch.from_numpy(resize_image(mask, self._input_size(mask.shape))).to(self.device)

        return self._keep(("inside", size, view), make)

    def _outside(self, size: tuple[int, int], view: View) -> Tensor:
        """Where a frame lies outside the view, H W."""
        return self._keep(("outside", size, view), lambda: torch.from_numpy(~_view_mask(view, size)).to(self.device))

    def _drawing(self, height: int, width: int) -> Drawing:
        return self._keep(
            ("drawing", height, width), lambda: Drawing(Overlay(self.classes, width, height), self.device)
        )

    def _keep(self, key: Hashable, make: Callable[[], T]) -> T:
        """What is made once for frames of one kind. It is never given up, as the first kinds are recorded, and read."""
        if key in self._kept:
            kept: T = self._kept[key]
            return kept
        made = make()
        if len(self._kept) < _KEPT:
            self._kept[key] = made
        return made

    def _certainty(self, found: Tensor, inside: Tensor) -> Tensor:
        """Confidence and entropy of each image, B 2."""
        if not self.network.scored:
            return torch.full((len(found), 2), torch.nan, device=found.device)
        count = len(self.classes)
        if found.shape[1] > count:
            inside = inside * (1 - found[:, count])
        found = found[:, :count]
        entropy = torch.special.entr(found).sum(1) / np.log(max(count, 2))
        values = torch.stack([found.amax(1), entropy], 1)
        weight = inside.expand(len(found), *inside.shape[-2:])[:, None]
        return (values * weight).sum((2, 3)) / weight.sum((2, 3)).clamp(min=1e-6)


@dataclass(frozen=True)
class Pending:
    """The predictions of a batch, which the device may still be at work on; any thread may ask for them."""

    prepared: Prepared
    certainty: Tensor
    found: Tensor
    """Whole masks (from a GPU); of what the view shows (from a CPU), probabilities at the network's size or masks."""
    ready: Any
    """The CUDA event after which they are there."""
    classes: int
    counts: Tensor | None = None
    """Of the pixels of each class, B C; from a GPU."""
    planes: Tensor | None = None
    """The overlays that a GPU drew."""

    def __len__(self) -> int:
        return len(self.prepared.frames)

    def __iter__(self) -> Iterator[Prediction]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, place: int) -> Prediction:
        """The prediction of one of the frames."""
        if not 0 <= place < len(self):
            raise IndexError(place)
        self.wait()
        found = self.found[place].numpy()
        confidence, entropy = self.certainty[place].tolist()
        # A copy: what came from a GPU lies in memory that is short, and needed for the next frames.
        return Prediction(found.copy() if self.counts is not None else self._mask(found), confidence, entropy)

    @property
    def measured(self) -> Iterator[tuple[list[float], np.ndarray]]:
        """Confidence and entropy, and how many pixels each class has: of each frame, from a GPU."""
        assert self.counts is not None
        self.wait()
        return zip(self.certainty.tolist(), self.counts.numpy(), strict=True)

    def wait(self) -> None:
        """Until the device is done."""
        if self.ready is not None:
            self.ready.synchronize()

    def _mask(self, found: np.ndarray) -> np.ndarray:
        """Of the whole frame, of what was found in its view."""
        (height, width), view = self.prepared.size, self.prepared.view
        ids = found if found.ndim == 2 else _class_ids(found, (view.height, view.width))
        ids = np.where(ids < self.classes, ids, IGNORE).astype(np.uint8) if ids.max() >= self.classes else ids
        mask = np.full((height, width), IGNORE, np.uint8)
        view.crop(mask)[:] = ids
        if view.circle:
            mask[~_view_mask(view, (height, width))] = IGNORE
        return mask


def _class_ids(found: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """`to_class_ids` of one image on a CPU, where class after class through OpenCV takes a small part of the time."""
    if found.shape[1:] == size:
        return found.argmax(0).astype(np.uint8)
    first, *others = _rivals(found)
    best, larger = np.empty((2, *size), np.float32)
    ids, number, wins = np.empty((3, *size), np.uint8)
    cv2.resize(found[first], size[::-1], dst=best, interpolation=cv2.INTER_LINEAR)
    ids.fill(first)
    for other in others:
        cv2.resize(found[other], size[::-1], dst=larger, interpolation=cv2.INTER_LINEAR)
        cv2.compare(larger, best, cv2.CMP_GT, dst=wins)
        cv2.max(larger, best, dst=best)
        number.fill(other)
        cv2.copyTo(number, wins, ids)
    return ids


def _rivals(found: np.ndarray) -> list[int]:
    """The classes that are the best somewhere between the pixels; the others, mostly absent, need not be enlarged."""
    square = np.ones((2, 2), np.uint8)  # between four pixels, a class lies between its least and its largest there
    sure = np.max([cv2.erode(scores, square) for scores in found], axis=0)
    return [number for number, scores in enumerate(found) if (cv2.dilate(scores, square) >= sure).any()]


@lru_cache(maxsize=8)
def _view_mask(view: View, size: tuple[int, int]) -> np.ndarray:
    return view.mask(size[1], size[0])


def _refuse_other_than_rgb(frames: Sequence[np.ndarray]) -> None:
    if not frames:
        raise UserError("No frames were given, expected at least one.")
    for frame in frames:
        if not isinstance(frame, np.ndarray):
            kind = type(frame).__name__
            raise UserError(
                f"A frame is of type {kind}, expected a NumPy array: suture.data.images.read_image gives one."
            )
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or not frame.size:
            found = f"{frame.dtype} of shape {'×'.join(map(str, frame.shape))}"
            raise UserError(
                f"A frame is {found}, expected RGB, uint8, H×W×3: convert it (suture.data.images.read_image)."
            )
        if frame.shape != frames[0].shape:
            raise UserError("The frames of a batch have different sizes: give them one by one.")
