import numpy as np
import pytest
import torch
from torchvision.transforms import functional as tv

from suture.data.sampling.augment import Augment
from suture.data.sampling.color_jitter import draw_jitter, jitter_colors
from suture.methods.unimatch import STRONG

CHANGES = (tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation, tv.adjust_hue)


@pytest.mark.parametrize("seed", range(4))
def test_colours_are_those_of_torchvision(seed: int) -> None:
    rng = np.random.default_rng(seed)
    images = torch.rand(6, 3, 40, 40, generator=torch.Generator().manual_seed(seed))
    images[0] = images[0, :1]  # grey: without a hue
    draws = np.stack([draw_jitter(rng, Augment(color=STRONG)) for _ in images])
    for image, draw, result in zip(images, draws, jitter_colors(images, torch.from_numpy(draws)), strict=True):
        for change in draw[6:].astype(int):
            image = CHANGES[change](image, float(draw[change]))
        if draw[4]:
            image = tv.rgb_to_grayscale(image, 3)
        if draw[5] >= 0:
            image = tv.gaussian_blur(image, [13, 13], [0.1 + 1.9 * float(draw[5])] * 2)
        inside = (..., slice(6, -6), slice(6, -6))  # torchvision mirrors the image at its border
        torch.testing.assert_close(result[inside], image[inside], rtol=0, atol=1e-5)


def test_draws_have_the_published_ranges() -> None:
    rng = np.random.default_rng(0)
    draws = np.stack([draw_jitter(rng, Augment(color=STRONG)) for _ in range(2000)])
    jittered = (draws[:, :4] != (1, 1, 1, 0)).any(1)
    assert jittered.mean() == pytest.approx(0.8, abs=0.03)
    moved = draws[jittered, :4]
    assert moved.min(0) == pytest.approx([0.5, 0.5, 0.5, -0.25], abs=0.01)
    assert moved.max(0) == pytest.approx([1.5, 1.5, 1.5, 0.25], abs=0.01)
    assert (draws[:, 4].mean(), (draws[:, 5] >= 0).mean()) == pytest.approx((0.2, 0.5), abs=0.04)
    assert len(np.unique(draws[:, 6:], axis=0)) == 24
