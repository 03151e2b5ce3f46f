"""Augmentation: drawn parameters are applied to images and labels alike, whatever else is in the batch."""

import colorsys
from collections.abc import Iterator

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

from suture.data.classes import IGNORE
from suture.data.sampling.augment import (
    COLORS,
    Augment,
    Patches,
    ViewDraw,
    collate,
    color_statistics,
    cut,
    draw_view,
    move_onto,
    recolor,
    render_confidence,
    render_images,
    render_labels,
    resample,
    restyle,
)
from suture.data.sampling.frames import generator

UNCHANGED = np.array([1.0, 1.0, 1.0, 0.0, 0.0, -1.0])
WHOLE = ViewDraw(np.array([0.0, 0.0, 1.0, 1.0]), False, UNCHANGED)


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def regions(height: int, width: int, seed: int = 0, classes: int = 4) -> np.ndarray:
    """Labels of large blobs."""
    coarse = np.random.default_rng(seed).random((classes, 4, 4)).astype(np.float32)
    return np.stack([cv2.resize(plane, (width, height)) for plane in coarse]).argmax(0).astype(np.uint8)


def tensor(image: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(image).permute(2, 0, 1)[None] / 255


def colors(**moves: float) -> np.ndarray:
    names = ("brightness", "contrast", "saturation", "hue", "grey", "blur")
    return np.array([moves.get(name, value) for name, value in zip(names, UNCHANGED, strict=True)])


crops = st.sampled_from([(0.1, 1.0), (0.3, 1.0), (0.5, 1.0), (1.0, 1.0), (0.5, 2.0)])
draws = st.builds(
    lambda seed, crop: draw_view(generator(seed), Augment(crop=crop, color="none")), st.integers(0, 10_000), crops
)
sides = st.integers(5, 40)


# Geometry


@pytest.mark.parametrize("flip", [False, True])
def test_a_whole_box_gives_the_pixels_or_their_mirror_image(flip: bool) -> None:
    image, labels = noise(33, 47), regions(33, 47)
    patches = collate([WHOLE._replace(flip=flip)], [image], [labels], [labels])
    expected, ids = tensor(image), torch.from_numpy(labels).long()
    if flip:
        expected, ids = expected.flip(-1), ids.flip(-1)
    torch.testing.assert_close(render_images(patches, (33, 47)), expected, atol=2e-6, rtol=0)
    assert torch.equal(render_labels(patches, (33, 47))[0], ids)
    confidence = render_confidence(patches, (33, 47))
    assert confidence is not None
    torch.testing.assert_close(confidence[0] * 255, ids.float())
    resized = F.interpolate(expected, (48, 40), mode="bilinear", align_corners=False)
    torch.testing.assert_close(render_images(patches, (48, 40)), resized, atol=1e-5, rtol=0)


@given(
    draw=draws,
    degrees=st.just(0.0) | st.floats(-180, 180),
    height=sides,
    width=sides,
    out=st.tuples(sides, sides),
)
def test_equals_sampling_the_whole_frame(
    draw: ViewDraw, degrees: float, height: int, width: int, out: tuple[int, int]
) -> None:
    """The pixels outside a cut are never needed: compared with slow sampling of the whole frame."""
    image, labels = noise(height, width), regions(height, width)
    patches = collate([draw._replace(degrees=degrees)], [image], [labels])
    x, y, w, h = draw.box * (width, height, width, height)
    right = ((np.arange(out[1]) + 0.5) / out[1] - 0.5) * w
    down = (((np.arange(out[0]) + 0.5) / out[0] - 0.5) * h)[:, None]
    if draw.flip:
        right = right[::-1]
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    columns, rows = x + w / 2 + cos * right - sin * down, y + h / 2 + sin * right + cos * down
    floor = np.floor([columns - 0.5, rows - 0.5]).astype(int)
    part = np.stack([columns - 0.5, rows - 0.5]) - floor

    def pixel(dx: int, dy: int) -> np.ndarray:
        return image[np.clip(floor[1] + dy, 0, height - 1), np.clip(floor[0] + dx, 0, width - 1)] / 255

    across, along = part[..., None]
    top = pixel(0, 0) * (1 - across) + pixel(1, 0) * across
    bottom = pixel(0, 1) * (1 - across) + pixel(1, 1) * across
    expected = top * (1 - along) + bottom * along
    np.testing.assert_allclose(render_images(patches, out)[0].permute(1, 2, 0), expected, atol=2e-4)
    found = render_labels(patches, out)[0].numpy()

    def labels_at(dx: float, dy: float) -> np.ndarray:
        at_x, at_y = np.floor(columns + dx).astype(int), np.floor(rows + dy).astype(int)
        there = labels[np.clip(at_y, 0, height - 1), np.clip(at_x, 0, width - 1)]
        return np.where((at_x >= 0) & (at_x < width) & (at_y >= 0) & (at_y < height), there, IGNORE)

    # A position on the edge of two pixels may be rounded to either.
    near = [found == labels_at(dx, dy) for dx in (-1e-4, 1e-4) for dy in (-1e-4, 1e-4)]
    assert np.logical_or.reduce(near).all()


@given(draw=draws, degrees=st.floats(-180, 180), seed=st.integers(0, 1000))
def test_a_view_tilted_about_a_point_shows_it(draw: ViewDraw, degrees: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    row, column = rng.integers(30), rng.integers(40)
    point = (column + 0.5) / 40, (row + 0.5) / 30
    labels = np.zeros((30, 40), np.uint8)
    labels[max(row - 2, 0) : row + 3, max(column - 2, 0) : column + 3] = 1
    tilted = move_onto(draw, *point, rng)._replace(degrees=degrees)
    assert (render_labels(collate([tilted], [noise(30, 40)], [labels]), (60, 80)) == 1).any()


def test_labels_of_one_pixel_hold_for_the_whole_scene_alone() -> None:
    tilted = WHOLE._replace(degrees=45)
    known = render_labels(collate([tilted], [noise(20, 60)], [np.zeros((20, 60), np.uint8)]), (40, 40))
    by_one_byte = render_labels(collate([tilted], [noise(20, 60)], [np.zeros((1, 1), np.uint8)]), (40, 40))
    assert torch.equal(known, by_one_byte)
    assert set(known.unique().tolist()) == {0, IGNORE}


def test_a_box_may_be_tilted_past_the_scene() -> None:
    for x in (-1.4, 0.0):
        beside = WHOLE._replace(box=np.array([x, 0, 2.4, 1]), degrees=90)
        shown = collate([beside], [noise(20, 100)], [np.zeros((20, 100), np.uint8)])
        assert render_images(shown, (8, 8)).isfinite().all()
        assert (render_labels(shown, (8, 8)) == IGNORE).all()


@given(seed=st.integers(0, 10_000), low=st.floats(0.05, 1), spread=st.floats(0, 1))
def test_boxes_lie_in_the_scene_or_the_scene_in_them(seed: int, low: float, spread: float) -> None:
    high = low + spread * (2 - low)
    draw = draw_view(np.random.default_rng(seed), Augment(crop=(low, high)))
    x, y, w, h = draw.box
    assert low - 1e-9 <= w == h <= high + 1e-9
    for corner in (x, y):
        assert min(0, 1 - w) - 1e-9 <= corner <= max(0, 1 - w) + 1e-9
    if w > 1:
        return
    patch, box, _ = cut(noise(17, 23), draw, (17, 23))
    assert patch.shape[0] <= 17
    assert (box >= 0).all()
    assert box[0] + box[2] <= patch.shape[1] + 1e-4
    assert box[1] + box[3] <= patch.shape[0] + 1e-4


# Batches


def sample(patches: Patches, place: int) -> tuple[torch.Tensor, torch.Tensor]:
    return render_images(patches, (24, 28))[place], render_labels(patches, (24, 28))[place]


@given(
    shapes=st.lists(st.tuples(sides, sides), min_size=2, max_size=5),
    seed=st.integers(0, 1000),
    crop=st.sampled_from([(0.1, 1.0), (1.0, 1.0)]),
)
def test_a_sample_does_not_depend_on_its_batch(
    shapes: list[tuple[int, int]], seed: int, crop: tuple[float, float]
) -> None:
    """Frames and labels of all sizes in one batch."""
    augment = Augment(crop=crop, color="strong")
    views = [draw_view(generator(seed, place), augment) for place in range(len(shapes))]
    images = [noise(*shape, seed=place) for place, shape in enumerate(shapes)]
    labels = [regions(width, height, seed=place) for place, (height, width) in enumerate(shapes)]
    together = collate(views, images, labels)
    for place in range(len(shapes)):
        alone = collate(views[place : place + 1], images[place : place + 1], labels[place : place + 1])
        image, label = sample(together, place)
        expected_image, expected_label = sample(alone, 0)
        # A larger patch beside it changes the scale in which grid_sample counts, and with it the rounding of positions.
        torch.testing.assert_close(image, expected_image, atol=3e-5, rtol=0)
        assert torch.equal(label, expected_label)


def test_patches_that_lie_one_after_the_other_never_leak() -> None:
    """A white frame beside a larger black one stays white to its last pixel, labels too; and nothing else is packed."""
    white, black = np.full((9, 11, 3), 255, np.uint8), np.zeros((40, 50, 3), np.uint8)
    for flip in (False, True):
        patches = collate(
            [WHOLE._replace(flip=flip), WHOLE], [white, black], [np.full((5, 4), 3, np.uint8), regions(40, 50)]
        )
        assert patches.images.pixels.shape == (9 * 11 + 40 * 50, 3)
        assert patches.labels.pixels.shape == (5 * 4 + 40 * 50,)
        assert (render_images(patches, (64, 64))[0] > 1 - 1e-5).all()
        assert (render_labels(patches, (64, 64))[0] == 3).all()


def test_a_worker_packs_into_memory_that_the_loader_shares() -> None:
    class One(IterableDataset[Patches]):
        def __iter__(self) -> Iterator[Patches]:
            patches = collate([WHOLE], [noise(20, 30)], [regions(20, 30)])
            assert patches.images.pixels.is_shared()
            yield patches

    (found,) = DataLoader(One(), batch_size=None, num_workers=1, multiprocessing_context="fork")
    alone = collate([WHOLE], [noise(20, 30)], [regions(20, 30)])
    assert not alone.images.pixels.is_shared()
    for one, other in zip(sample(found, 0), sample(alone, 0), strict=True):
        assert torch.equal(one, other)


def test_a_frame_without_labels_is_all_ignore_and_without_confidence_all_sure() -> None:
    draw = draw_view(np.random.default_rng(0), Augment(crop=(0.1, 0.2)))
    labels = regions(20, 20)
    patches = collate([draw, WHOLE], [noise(20, 20)] * 2, [None, labels], [None, np.zeros((20, 20), np.uint8)])
    assert (render_labels(patches, (8, 8))[0] == IGNORE).all()
    assert (render_labels(patches, (8, 8))[1] != IGNORE).all()
    confidence = render_confidence(patches, (8, 8))
    assert confidence is not None
    assert (confidence[0] == 1).all()
    assert (confidence[1] == 0).all()
    assert render_confidence(collate([WHOLE], [noise(20, 20)], [labels]), (8, 8)) is None


@pytest.mark.parametrize("size", [(32, 48), (33, 44), (47, 31)])
@pytest.mark.parametrize("flip", [False, True])
def test_labels_of_a_feature_grid_lie_under_its_cells(size: tuple[int, int], flip: bool) -> None:
    """Cell i of a grid of stride 8 sees the pixels from 8·i on, also where the last cell is cut."""
    patches = collate([WHOLE._replace(flip=flip)], [noise(*size)], [regions(*size)])
    full = render_labels(patches, size)[0]
    grid = render_labels(patches, size, stride=8)[0]
    assert grid.shape == (-(-size[0] // 8), -(-size[1] // 8))
    for i, j in np.ndindex(*grid.shape):
        middle = full[8 * i : 8 * i + 8, 8 * j : 8 * j + 8]
        around = middle[max(0, min(3, len(middle) - 1)) : 5, max(0, min(3, middle.shape[1] - 1)) : 5]
        assert grid[i, j] in around


# Colour


def reference(image: np.ndarray, brightness: float, contrast: float, saturation: float, grey: bool) -> np.ndarray:
    """Move colours pixel by pixel: RGB 0…1, H W 3."""
    luma = np.array([0.299, 0.587, 0.114])
    result = np.empty_like(image)
    for place in np.ndindex(image.shape[:2]):
        pixel = image[place]
        light = (pixel * luma).sum()
        result[place] = brightness * (light + (0 if grey else saturation) * (pixel - light))
    mean = (result * luma).sum(-1).mean()
    return np.clip(mean + contrast * (result - mean), 0, 1)


@given(
    brightness=st.floats(0.6, 1.4),
    contrast=st.floats(0.6, 1.4),
    saturation=st.floats(0.6, 1.4),
    grey=st.booleans(),
    seed=st.integers(0, 100),
)
def test_colours_equal_a_pixelwise_reference(
    brightness: float, contrast: float, saturation: float, grey: bool, seed: int
) -> None:
    image = noise(6, 7, seed)
    draw = colors(brightness=brightness, contrast=contrast, saturation=saturation, grey=float(grey))
    # Two samples with draws of their own, so that none takes the other's.
    found = recolor(tensor(image).expand(2, -1, -1, -1), torch.tensor(np.stack([UNCHANGED, draw])))
    torch.testing.assert_close(found[:1], tensor(image), atol=1e-5, rtol=0)
    expected = reference(image / 255, brightness, contrast, saturation, grey)
    np.testing.assert_allclose(found[1].permute(1, 2, 0), expected, atol=1e-5)


def test_hue_turns_colours_and_leaves_light_and_grey_alone() -> None:
    image = torch.tensor([[0.6, 0.3, 0.3], [0.4, 0.4, 0.4]]).T.reshape(1, 3, 1, 2)  # a red and a grey
    luma = torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)
    for turns in (-0.1, 0.1, 1 / 3):
        found = recolor(image, torch.tensor(colors(hue=turns))[None])
        torch.testing.assert_close((found * luma).sum(1), (image * luma).sum(1), atol=1e-4, rtol=0)
        torch.testing.assert_close(found[..., 1], image[..., 1], atol=1e-4, rtol=0)
        hue = colorsys.rgb_to_hsv(*found[0, :, 0, 0].tolist())[0]
        # The circle of chroma is not quite the one of HSV, but it turns the same way round or the other one.
        assert min(abs(hue - turns % 1), abs(hue - -turns % 1)) < 0.08
    back = recolor(recolor(image, torch.tensor(colors(hue=0.1))[None]), torch.tensor(colors(hue=-0.1))[None])
    torch.testing.assert_close(back, image, atol=1e-4, rtol=0)


@pytest.mark.parametrize("blur", [0.0, 0.5, 1.0])
def test_blur_preserves_the_mean_and_spreads(blur: float) -> None:
    image = torch.zeros(2, 3, 300, 300)
    image[:, :, 150, 150] = 1.0
    found = recolor(image, torch.tensor(np.stack([colors(blur=blur), UNCHANGED])))
    torch.testing.assert_close(found[1], image[1], atol=1e-5, rtol=0)
    torch.testing.assert_close(found.sum((2, 3)), image.sum((2, 3)), atol=1e-4, rtol=0)
    offsets = torch.arange(300.0) - 150
    width = (found[0, 0].sum(0) * offsets**2).sum().sqrt().item()
    expected = (0.05 + 0.95 * blur) * 0.009 * 300
    assert width == pytest.approx(expected, rel=0.05) if blur else width < 0.1
    constant = torch.full((1, 3, 40, 40), 0.3)
    torch.testing.assert_close(recolor(constant, torch.tensor(colors(blur=blur))[None]), constant, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", COLORS)
def test_colours_stay_in_range(name: str) -> None:
    augment = Augment(color=name)
    drawn = np.stack([draw_view(generator(seed), augment).color for seed in range(32)])
    found = recolor(torch.rand(32, 3, 16, 16, generator=torch.Generator().manual_seed(0)), torch.tensor(drawn))
    assert found.isfinite().all()
    assert found.min() >= 0
    assert found.max() <= 1 + 1e-6


# Draws


def test_settings_do_not_shift_the_stream() -> None:
    streams = generator(3), generator(3)
    settings = Augment(color="none"), Augment(color="strong", tilt=30)
    for _ in range(5):
        one, other = (draw_view(rng, augment) for rng, augment in zip(streams, settings, strict=True))
        assert np.array_equal(one.box, other.box)
        assert one.flip == other.flip


def test_draws_have_the_stated_frequencies() -> None:
    augment = Augment(crop=(0.3, 0.7), tilt=30, color="strong")
    drawn = [draw_view(generator(0, number), augment) for number in range(2000)]
    color = np.stack([draw.color for draw in drawn])
    assert np.mean([draw.flip for draw in drawn]) == pytest.approx(0.5, abs=0.04)
    assert (color[:, 5] >= 0).mean() == pytest.approx(0.5, abs=0.04)
    assert color[:, 4].mean() == pytest.approx(0.2, abs=0.04)
    assert (color[:, 0] != 1).mean() == pytest.approx(0.8, abs=0.04)
    assert 0.6 <= color[:, :2].min() < 0.62
    assert 1.38 < color[:, :2].max() <= 1.4
    assert np.mean([draw.box[2] for draw in drawn]) == pytest.approx(0.5, abs=0.02)
    degrees = np.array([draw.degrees for draw in drawn])
    assert np.percentile(degrees, [0, 25, 50, 75, 100]) == pytest.approx([-30, -15, 0, 15, 30], abs=2.5)


@pytest.mark.parametrize("wrong", [{"crop": (0.0, 1.0)}, {"crop": (0.7, 0.3)}, {"crop": (0.5, 2.1)}, {"color": "loud"},
                                   {"color": {"hue": 1}}, {"tilt": 181}, {"angle": 3}])  # fmt: skip
def test_refuses_impossible_settings(wrong: dict) -> None:
    with pytest.raises(ValidationError):
        Augment(**wrong)


@given(seed=st.integers(0, 2**31), crop=crops, x=st.floats(0, 1), y=st.floats(0, 1))
def test_a_moved_box_shows_the_point_and_stays_in_the_scene(
    seed: int, crop: tuple[float, float], x: float, y: float
) -> None:
    rng = generator(seed)
    draw = draw_view(rng, Augment(crop=crop))
    moved = move_onto(draw, x, y, rng)
    assert tuple(moved.box[2:]) == tuple(draw.box[2:])
    for point, corner, side in zip((x, y), moved.box[:2], moved.box[2:], strict=True):
        assert corner - 1e-9 <= point <= corner + side + 1e-9
        assert min(0, 1 - side) - 1e-9 <= corner <= max(0, 1 - side) + 1e-9
    assert moved.flip == draw.flip


def test_a_moved_box_is_anywhere_around_the_point() -> None:
    draw = WHOLE._replace(box=np.array([0.0, 0.0, 0.4, 0.4]))
    lefts = np.array([move_onto(draw, 0.5, 0.9, generator(n)).box[:2] for n in range(500)])
    assert lefts.min(0) == pytest.approx([0.1, 0.5], abs=0.01)
    assert lefts.max(0) == pytest.approx([0.5, 0.6], abs=0.01)
    assert lefts.mean(0) == pytest.approx([0.3, 0.55], abs=0.02)


def test_resampling_keeps_the_colours() -> None:
    patches = collate([WHOLE._replace(color=np.array([1.4, 0.7, 1.1, 0.1, 1, 0.5]))], [noise(9, 9)], [None])
    assert torch.equal(recolor(resample(patches, (8, 8)), patches.color), render_images(patches, (8, 8)))
    unchanged = patches._replace(color=torch.tensor(UNCHANGED[None], dtype=torch.float32))
    torch.testing.assert_close(resample(patches, (8, 8)), render_images(unchanged, (8, 8)), atol=1e-5, rtol=0)


def test_colour_statistics_are_those_inside_the_view() -> None:
    images = torch.rand(2, 3, 6, 7, generator=torch.Generator().manual_seed(0))
    inside = torch.rand(2, 6, 7, generator=torch.Generator().manual_seed(1)) < 0.5
    inside[1] = False  # a crop beside the view: all of it
    found = color_statistics(images, inside)
    for n in range(2):
        pixels = images[n][:, inside[n]] if n == 0 else images[n].flatten(1)
        torch.testing.assert_close(found[n, 0], pixels.mean(1))
        torch.testing.assert_close(found[n, 1], pixels.std(1, correction=0))


def test_restyled_images_have_the_other_s_colours_inside_the_view() -> None:
    images = 0.4 + 0.2 * torch.rand(2, 3, 6, 7, generator=torch.Generator().manual_seed(0))
    inside = torch.rand(2, 6, 7, generator=torch.Generator().manual_seed(1)) < 0.5
    own = color_statistics(images, inside)
    torch.testing.assert_close(restyle(images, inside, own, own), images)
    other = own.flip(0) + 0.01
    found = restyle(images, inside, own, other)
    torch.testing.assert_close(color_statistics(found, inside), other, rtol=1e-4, atol=1e-5)
    outside = ~inside[:, None].expand_as(images)
    assert torch.equal(found[outside], images[outside])
    even = restyle(torch.full((1, 3, 2, 2), 0.5), torch.ones(1, 2, 2, dtype=torch.bool), own[:1] * 0 + 0.5, other[:1])
    assert even.isfinite().all()


@pytest.mark.parametrize("level", [0.0, 0.5])
def test_a_frame_that_shows_nothing_has_no_colours_to_give(level: float) -> None:
    generator = torch.Generator().manual_seed(0)
    image, inside = torch.rand(1, 3, 6, 7, generator=generator), torch.ones(1, 6, 7, dtype=torch.bool)
    blank = level + 0.004 * torch.rand(1, 3, 6, 7, generator=generator)
    own, other = color_statistics(image, inside), color_statistics(blank, inside)
    assert torch.equal(restyle(image, inside, own, other), image)
    blank[:, 1] = image[:, 1]  # light of one colour is enough
    assert not torch.equal(restyle(image, inside, own, color_statistics(blank, inside)), image)
