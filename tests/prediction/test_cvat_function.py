"""The example for CVAT, loaded as `cvat-cli` does and checked by CVAT's own rules."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from predict_files import NAMES, picture, write_model

from suture.prediction.predictor import Predictor

pytestmark = pytest.mark.extras
EXAMPLE = Path(__file__).resolve().parents[2] / "examples/cvat_auto_annotate.py"


def test_cvat_accepts_the_masks_of_the_function(tmp_path: Path) -> None:
    pytest.importorskip("cvat_cli")
    from cvat_cli._internal.common import FunctionLoader
    from cvat_sdk import masks, models
    from cvat_sdk.auto_annotation.driver import _AnnotationMapper

    model = write_model(tmp_path)
    function: Any = FunctionLoader(None, EXAMPLE, {"model": str(model), "device": "cpu", "skip": ""}).load()
    shapes = function.detect(SimpleNamespace(conv_mask_to_poly=False, conf_threshold=None), Image.fromarray(picture(0)))
    found = np.full(picture(0).shape[:2], 255, np.uint8)
    for shape in shapes:
        inside = masks.decode_mask(shape.points, image_width=found.shape[1], image_height=found.shape[0])
        assert (found[inside] == 255).all()
        found[inside] = shape.label_id
    assert (found == Predictor(model, "cpu")(picture(0))).all()
    labels = [
        models.Label(id=10 + number, name=name, type="any", attributes=[], sublabels=[])
        for number, name in enumerate(NAMES)
    ]
    mapper = _AnnotationMapper(
        logging.getLogger(), function.spec.labels, labels, allow_unmatched_labels=False, conv_mask_to_poly=False
    )
    expected = [10 + shape.label_id for shape in shapes]
    _, mapped = mapper.validate_and_remap(shapes, 5)
    assert [(shape.label_id, shape.frame) for shape in mapped] == [(label, 5) for label in expected]
