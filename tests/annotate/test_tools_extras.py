"""The codecs against the tools' own packages."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis.extra import numpy as hnp

from suture.data.formats.brush import decode_brush, encode_brush
from suture.data.formats.shapes import DrawnImage, ShapeMask, crop_shape

pytestmark = pytest.mark.extras
masks = hnp.arrays(bool, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9))


@given(masks)
@example(np.ones((90, 250), bool))
def test_brush_code_is_label_studios(mask: np.ndarray) -> None:
    brush = pytest.importorskip("label_studio_converter.brush")
    theirs = brush.mask2rle(mask.astype(np.uint8) * 255)
    assert (decode_brush(theirs, *mask.shape) == mask).all()
    assert (brush.decode_rle(encode_brush(mask)).reshape(*mask.shape, 4) == mask[..., None] * np.uint8(255)).all()


@given(masks)
def test_run_lengths_of_a_crop_are_cvats(mask: np.ndarray) -> None:
    cvat = pytest.importorskip("cvat_sdk.masks")
    *runs, left, top, right, bottom = cvat.encode_mask(mask)
    ours = crop_shape(mask[top : bottom + 1, left : right + 1], left, top)
    assert ours == {"box": [left, top, right - left + 1, bottom - top + 1], "counts": runs}
    height, width = mask.shape
    drawn = ShapeMask("mask", DrawnImage(width, height, [("a", ours)]), {"a": 1}).read(by_color=False)
    assert ((drawn == 1) == mask).all()
