"""How far masks that follow one another agree."""

import numpy as np
from predict_files import picture

from suture.prediction.flow_agreement import Thumbnail, flow_agreement


def test_what_frames_are_compared_before_changes_nothing() -> None:
    """Whichever process or thread compares two frames, and whatever it has seen."""
    sizes = np.random.default_rng(0).integers(20, 160, (60, 2)).tolist()
    pairs = []
    for index, (width, height) in enumerate(sizes):
        frames = [picture(index + step, width, height) for step in (0, 3)]
        pairs.append([Thumbnail.of(frame, (frame[..., 0] // 90).astype(np.uint8)) for frame in frames])
    forwards = [flow_agreement(*pair) for pair in pairs]
    assert forwards == [flow_agreement(*pair) for pair in reversed(pairs)][::-1]
