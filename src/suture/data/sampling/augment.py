"""Random crops and colours, batched on the device, with every parameter drawn by an explicit generator.

A `ViewDraw` holds the parameters of one sample: a crop box in fractions of the scene, its tilt, a flip and colours.
Loader workers cut the box out of the stored frame (`cut`); the device resizes all boxes with one `grid_sample` and
applies the colours as one affine map per sample. Labels get the same geometry with nearest neighbour.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, field_validator, model_validator
from torch import Tensor
from torch.utils.data import get_worker_info

from suture.core.settings import Settings

Fraction = Field(ge=0, le=1)
BLANK = 4 / 255
"""Spread of colours below which a frame shows nothing: it is black, or there was no signal."""
_ALL_255 = np.full((1, 1), 255, np.uint8)
"""One pixel for a whole scene: as labels all `IGNORE`, as confidence all sure."""
# RGB → YIQ: turning the two chroma axes turns the hue, and stays a linear map.
_YIQ = torch.tensor([[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])
_FROM_YIQ = torch.linalg.inv(_YIQ)


class ColorJitter(Settings):
    """Colour augmentation: the widths of the jitter, and the shares of samples that get each part."""

    brightness: float = Fraction
    """Largest change of brightness."""
    contrast: float = Fraction
    """Largest change of contrast."""
    saturation: float = Fraction
    """Largest change of saturation."""
    hue: float = Field(ge=0, le=0.5)
    """Largest change of hue, in turns."""
    jitter: float = Fraction
    """Share of samples with moved brightness, contrast, saturation and hue."""
    grey: float = Fraction
    """Share of samples that become grey."""
    blur: float = Fraction
    """Share of samples that are blurred."""


COLORS = {
    "none": ColorJitter(brightness=0, contrast=0, saturation=0, hue=0, jitter=0, grey=0, blur=0),
    "mild": ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2, hue=0.02, jitter=1, grey=0, blur=0),
    # PixPro's strengths; its solarisation is left out, because it has no counterpart in endoscopic light.
    "strong": ColorJitter(brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1, jitter=0.8, grey=0.2, blur=0.5),
}


class Augment(Settings):
    """Random crop, tilt, mirror image and colours."""

    crop: tuple[float, float] = (0.5, 1.0)
    """Range of the crop's side in sides of the scene; beyond 1 the scene is seen from further away."""
    tilt: float = Field(0, ge=0, le=180)
    """Largest tilt to either side, in degrees."""
    flip: bool = True
    """Mirror half of the samples."""
    color: ColorJitter = COLORS["mild"]
    """Colour changes: `none`, `mild`, `strong`, or a section with the keys below."""

    @field_validator("color", mode="before")
    @classmethod
    def _preset(cls, value: Any) -> Any:
        if isinstance(value, str):
            if value not in COLORS:
                raise ValueError(f"{value!r} is not one of {', '.join(COLORS)}")
            return COLORS[value]
        return value

    @model_validator(mode="after")
    def _crop_in_range(self) -> "Augment":
        low, high = self.crop
        if not 0 < low <= high <= 2:
            raise ValueError(f"crop is {list(self.crop)}, expected [min, max] with 0 < min ≤ max ≤ 2")
        return self


class ViewDraw(NamedTuple):
    """The parameters of one sample."""

    box: np.ndarray
    """x, y, width, height as fractions of the scene, before it is tilted."""
    flip: bool
    color: np.ndarray
    """brightness, contrast, saturation, hue (turns), grey, blur (0…1 of the largest width; negative: none)."""
    degrees: float = 0.0
    """Tilt of the box, clockwise."""
    about: tuple[float, float] | None = None
    """Centre of the tilt in fractions of the scene; by default the box's middle."""


def draw_view(rng: np.random.Generator, augment: Augment) -> ViewDraw:
    """Draw the parameters of one sample."""
    u = rng.random(14)  # always as many, so that later draws of the stream are the same whatever the settings
    side = augment.crop[0] + u[0] * (augment.crop[1] - augment.crop[0])
    box = np.array([*(u[1:3] * (1 - side)), side, side])
    c = augment.color
    jitter = float(u[4] < c.jitter)
    widths = np.array([c.brightness, c.contrast, c.saturation, c.hue]) * jitter
    moves = (2 * u[5:9] - 1) * widths + np.array([1, 1, 1, 0])
    blur = u[11] if u[10] < c.blur else -1.0
    color = np.array([*moves, float(u[9] < c.grey), blur])
    return ViewDraw(box, bool(augment.flip and u[3] < 0.5), color, augment.tilt * (2 * u[12] - 1))


UNCHANGED = draw_view(np.random.default_rng(0), Augment(color=COLORS["none"])).color
"""Colour parameters that change nothing."""


def move_onto(draw: ViewDraw, x: float, y: float, rng: np.random.Generator) -> ViewDraw:
    """Move the box so that it shows the point x, y (fractions of the scene), uniformly over all such places.

    Along either axis the box lies in the scene, or the scene in it. It is tilted about the point and still shows it.
    """
    point, side = np.array([x, y]), draw.box[2:]
    low, high = np.maximum(point - side, np.minimum(0, 1 - side)), np.minimum(point, np.maximum(0, 1 - side))
    return draw._replace(box=np.concatenate([low + rng.random(2) * (high - low), side]), about=(x, y))


def outline(
    draw: ViewDraw, scene: tuple[int, ...], shape: tuple[int, ...] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the tilted box and the slant of a view, in pixels.

    A corner may lie outside the scene: there images show the nearest pixel, and labels are `IGNORE`.

    Args:
        draw: The parameters of the view.
        scene: Height and width of the scene, in whose pixels angles are true.
        shape: Height and width of another array that shows all of the scene; the result is in its pixels.

    Returns:
        The box: the upper left corner, the upper side's run to the right and the left side's run down. The slant: the
        left side's run to the right and the upper side's run down.

    >>> quarter = ViewDraw(np.array([0, 0, 1, 1]), False, UNCHANGED, degrees=90)
    >>> [side.round().tolist() for side in outline(quarter, (10, 20))]  # from its corner, 20 down and 10 to the left
    [[15.0, -5.0, 0.0, 0.0], [-10.0, 20.0]]
    """
    size = np.array([scene[1], scene[0]])
    corner, sides = draw.box[:2] * size, draw.box[2:] * size
    middle = corner + sides / 2 if draw.about is None else draw.about * size
    right, down = corner - middle
    cos, sin = math.cos(math.radians(draw.degrees)), math.sin(math.radians(draw.degrees))
    turned = middle[0] + cos * right - sin * down, middle[1] + sin * right + cos * down
    scale = (1.0, 1.0) if shape is None else (shape[1] / scene[1], shape[0] / scene[0])
    return np.array([*turned, *cos * sides]) * (*scale, *scale), np.array([-sin * sides[1], sin * sides[0]]) * scale


class Layer(NamedTuple):
    """uint8 patches of several sizes, packed one after the other without padding."""

    pixels: Tensor
    """All rows of all patches: P, or P 3."""
    sizes: Tensor
    """N 2: height and width of each patch."""
    boxes: Tensor
    """N 4: the box of each sample in its patch, as of `outline`."""
    slants: Tensor | None
    """N 2: the slants; None if all are upright."""
    height: int
    """Height of the tallest patch, known without asking the device."""
    width: int
    """Width of the widest patch."""

    def at(self, y: Tensor, x: Tensor) -> Tensor:
        """Return the pixels in rows y and columns x (together N H W), or the patch's nearest where there is none."""
        heights, widths = self.sizes[:, :, None, None].unbind(1)
        first = torch.cumsum(heights * widths, 0) - heights * widths
        places = torch.minimum(y.clamp(min=0), heights - 1) * widths + first + torch.minimum(x.clamp(min=0), widths - 1)
        return self.pixels.index_select(0, places.flatten()).view(*places.shape, *self.pixels.shape[1:])


class Patches(NamedTuple):
    """A batch as the loader hands it to the device. Layers may have resolutions of their own."""

    images: Layer
    labels: Layer
    confidence: Layer | None
    """Confidence of the labels, 0…255; None where it is not needed."""
    flip: Tensor
    color: Tensor


def cut(array: np.ndarray, draw: ViewDraw, scene: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut out the pixels that bilinear sampling of a draw needs.

    Args:
        array: Shows all of the scene, at any resolution.
        draw: The parameters of the sample.
        scene: Height and width of the scene.

    Returns:
        The patch, and the draw's box and slant in its coordinates.
    """
    height, width = array.shape[:2]
    (x, y, w, h), (right, down) = outline(draw, scene, array.shape)
    leftmost, rightmost = x + min(w, 0) + min(right, 0), x + max(w, 0) + max(right, 0)
    topmost, lowest = y + min(h, 0) + min(down, 0), y + max(h, 0) + max(down, 0)
    left, end = _span(leftmost, rightmost, width)
    top, bottom = _span(topmost, lowest, height)
    box = np.array([x - left, y - top, w, h], np.float32)
    return array[top:bottom, left:end], box, np.array([right, down], np.float32)


def _span(low: float, high: float, length: int) -> tuple[int, int]:
    """Range of pixels from low to high, with one more on each side; at least one pixel."""
    first = min(max(math.floor(low) - 1, 0), length - 1)
    return first, max(min(math.ceil(high) + 1, length), first + 1)


def collate(
    draws: Sequence[ViewDraw],
    images: Sequence[np.ndarray],
    labels: Sequence[np.ndarray | None],
    confidence: Sequence[np.ndarray | None] | None = None,
) -> Patches:
    """Cut every sample out of its arrays and pack them.

    Args:
        draws: The parameters of the samples.
        images: The frames, H W 3.
        labels: Class ids of each frame; None for all `IGNORE`.
        confidence: Confidence of the labels, 0…255; None for a frame that is sure.
    """
    known, sure = ([_ALL_255 if array is None else array for array in arrays] for arrays in (labels, confidence or ()))
    return Patches(
        cut_layer(draws, images, images),
        cut_layer(draws, known, images),
        cut_layer(draws, sure, images) if sure else None,
        torch.tensor([draw.flip for draw in draws]),
        torch.from_numpy(np.stack([draw.color for draw in draws]).astype(np.float32)),
    )


def cut_layer(draws: Sequence[ViewDraw], arrays: Sequence[np.ndarray], images: Sequence[np.ndarray]) -> Layer:
    """Cut every sample out of its array, which shows the same scene as its image."""
    cuts = (cut(array, draw, image.shape) for array, draw, image in zip(arrays, draws, images, strict=True))
    patches, boxes, slants = zip(*cuts, strict=True)
    sizes = np.array([patch.shape[:2] for patch in patches])
    ends = sizes.prod(1).cumsum()
    pixels = _memory(int(ends[-1]), *arrays[0].shape[2:])
    packed = pixels.numpy()
    for patch, end in zip(patches, ends, strict=True):
        height, width = patch.shape[:2]
        packed[end - height * width : end].reshape(patch.shape)[:] = patch
    tallest, widest = sizes.max(0).tolist()
    return Layer(
        pixels,
        torch.from_numpy(sizes),
        torch.from_numpy(np.stack(boxes)),
        torch.from_numpy(np.stack(slants)) if np.any(slants) else None,
        tallest,
        widest,
    )


def _memory(*shape: int) -> Tensor:
    """Allocate bytes; in a loader's worker they are shared with the waiting process, which saves a copy."""
    if get_worker_info() is None:
        return torch.empty(shape, dtype=torch.uint8)
    return torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage._new_shared(math.prod(shape))).view(shape)


def render_images(patches: Patches, size: tuple[int, int]) -> Tensor:
    """Resize every box to height × width and apply the colours: N 3 H W, float, 0…1."""
    return recolor(resample(patches, size), patches.color)


def resample(patches: Patches, size: tuple[int, int]) -> Tensor:
    """Resize every box to height × width, without its colours: N 3 H W, float, 0…1."""
    layer = patches.images
    rows, columns = (torch.arange(side, device=layer.sizes.device) for side in (layer.height, layer.width))
    images = layer.at(rows[:, None], columns).permute(0, 3, 1, 2).float()
    x, y = _positions(layer, patches.flip, size)
    grid = torch.stack(torch.broadcast_tensors(2 * x / layer.width - 1, 2 * y / layer.height - 1), -1)
    sampled = F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
    return sampled.div_(255)  # the patches are larger than what is taken out of them


def render_labels(patches: Patches, size: tuple[int, int], stride: int = 1) -> Tensor:
    """Render the labels under the same geometry, nearest neighbour: N H W, int64.

    With a stride, at the centres of the cells of a feature grid: N h w with h = ceil(H / stride).
    """
    return render_nearest(patches.labels, patches.flip, size, stride).long()


def render_confidence(patches: Patches, size: tuple[int, int], stride: int = 1) -> Tensor | None:
    """Render the labels' confidence under the same geometry: N H W, 0…1."""
    return None if patches.confidence is None else render_nearest(patches.confidence, patches.flip, size, stride) / 255


def render_nearest(layer: Layer, flip: Tensor, size: tuple[int, int], stride: int = 1) -> Tensor:
    """Render a layer under the samples' geometry, nearest neighbour: N H W or N h w, with 255 off the scene."""
    x, y = (place.floor().long() for place in _positions(layer, flip, size, stride))
    heights, widths = layer.sizes[:, :, None, None].unbind(1)
    return layer.at(y, x).where((x >= 0) & (x < widths) & (y >= 0) & (y < heights), 255)


def _positions(layer: Layer, flip: Tensor, size: tuple[int, int], stride: int = 1) -> tuple[Tensor, Tensor]:
    """Pixel coordinates x and y of the centres of the output's stride × stride cells.

    Together N H W; where all boxes are upright, N 1 W and N H 1.
    """

    def middles(side: int) -> Tensor:
        places = (torch.arange(-(-side // stride), device=flip.device) + 0.5) * stride
        return places.clamp(max=side - 0.5) / side  # the middle of a last, cut cell may lie outside

    u, v = middles(size[1]), middles(size[0])[:, None]
    u = torch.where(flip[:, None, None], 1 - u, u)
    x, y, width, height = layer.boxes[:, :, None, None].unbind(1)
    x, y = x + u * width, y + v * height
    if layer.slants is not None:
        right, down = layer.slants[:, :, None, None].unbind(1)
        x, y = x + v * right, y + u * down
    return x, y


def recolor(images: Tensor, color: Tensor) -> Tensor:
    """Apply colours (N 6): brightness, saturation, hue and grey as one matrix, contrast about the mean, then blur."""
    brightness, contrast, saturation, hue, grey, blur = color.to(images.dtype).unbind(1)
    device, dtype = images.device, images.dtype
    to_yiq, from_yiq, to_grey = (m.to(device, dtype, non_blocking=True) for m in (_YIQ, _FROM_YIQ, _YIQ[None, :1]))
    chroma = saturation * (1 - grey)
    angle = 2 * torch.pi * hue
    turn = torch.zeros(len(images), 3, 3, device=device, dtype=dtype)
    turn[:, 0, 0] = 1
    turn[:, 1, 1] = turn[:, 2, 2] = chroma * angle.cos()
    turn[:, 1, 2] = -chroma * angle.sin()
    turn[:, 2, 1] = chroma * angle.sin()
    matrix = brightness[:, None, None] * (from_yiq @ turn @ to_yiq)
    n, _, height, width = images.shape
    flat = images.reshape(n, 3, -1)
    mean = to_grey @ matrix @ flat.mean(2, keepdim=True)
    contrast = contrast[:, None, None]
    moved = torch.baddbmm((1 - contrast) * mean, contrast * matrix, flat)
    moved = moved.clamp_(0, 1).reshape(n, 3, height, width)
    return _blurred(moved, blur)


def _blurred(images: Tensor, amount: Tensor) -> Tensor:
    """Blur each sample with a width of its own, up to 0.9 % of the side (0.1…2 pixels at 224, as PixPro)."""
    largest = 0.009 * min(images.shape[2:])
    return blur(images, torch.where(amount < 0, 0, (0.05 + amount * 0.95) * largest), largest)


def blur(images: Tensor, sigma: Tensor, largest: float) -> Tensor:
    """Blur each sample with a Gaussian of its own width in pixels, up to `largest`; 0 is none."""
    n, channels, height, width = images.shape
    radius = max(1, round(3 * largest))
    offsets = torch.arange(-radius, radius + 1, device=images.device, dtype=images.dtype)
    kernel = torch.exp(-0.5 * (offsets / sigma.clamp(min=1e-3)[:, None]) ** 2)
    kernel = kernel / kernel.sum(1, keepdim=True)
    flat = images.reshape(1, n * channels, height, width)
    weight = kernel.repeat_interleave(channels, 0)[:, None]
    padded = F.pad(flat, (radius, radius, radius, radius), mode="replicate")
    blurred = F.conv2d(padded, weight[:, :, None, :], groups=n * channels)
    blurred = F.conv2d(blurred, weight[:, :, :, None], groups=n * channels)
    return blurred.reshape(images.shape)


def color_statistics(images: Tensor, inside: Tensor) -> Tensor:
    """Mean and standard deviation of every channel over the pixels `inside` (N H W) the view: N 2 3.

    >>> grey = torch.tensor([0.0, 1.0, 9.0]).expand(1, 3, 1, 3)
    >>> color_statistics(grey, torch.tensor([[[True, True, False]]]))[0, :, 0].tolist()
    [0.5, 0.5]
    """
    inside = inside | ~inside.any(2, keepdim=True).any(1, keepdim=True)  # a crop beside the view: all of it
    weights = (inside / inside.sum((1, 2), keepdim=True))[:, None]
    mean = (images * weights).sum((2, 3))
    variance = ((images - mean[..., None, None]) ** 2 * weights).sum((2, 3))
    return torch.stack([mean, variance.sqrt()], 1)


def restyle(images: Tensor, inside: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """Replace the colour statistics of images (N 2 3) by others, inside the view.

    Statistics of a blank frame are not taken over: the image would be blank too.
    """
    (mean, spread), (new_mean, new_spread) = own[..., None, None].unbind(1), other[..., None, None].unbind(1)
    least = 1 / 255  # below it there is only noise, which would be blown up
    moved = (images - mean) * (new_spread.clamp(min=least) / spread.clamp(min=least)) + new_mean
    shows = (new_spread >= BLANK).any(1, keepdim=True)
    return torch.where(inside[:, None] & shows, moved.clamp(0, 1), images)
