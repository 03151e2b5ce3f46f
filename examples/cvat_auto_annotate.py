"""Drafts of a finished model for a task of CVAT: a function file for `cvat-cli task auto-annotate`.

    cvat-cli --server-host SERVER task auto-annotate TASK --allow-unmatched-labels \\
        --function-file examples/cvat_auto_annotate.py -p model=str:RUN

RUN is a run folder. The labels of the task are matched by name. Install `cvat-cli` beside Suture.
"""

from typing import Any

import cvat_sdk.auto_annotation as cvataa
import numpy as np
from PIL import Image

import suture
from suture.annotate.drafts import ToolLabels
from suture.data.formats.shapes import crop_shape


class SutureFunction:
    """Detection function: one mask for each connected part of each class.

    Args:
        model: Run folder, `model.safetensors` or ONNX file.
        device: `auto`, `cpu`, `cuda` …
        skip: Class that is not drawn.
    """

    def __init__(self, model: str, device: str = "auto", skip: str = "background") -> None:
        self.predictor = suture.Predictor(model, device)
        names = self.predictor.classes.names
        self.labels = ToolLabels(names, self.predictor.classes.colors, names.index(skip) if skip in names else None)
        specs = [cvataa.label_spec(name, number, type="mask") for number, name in enumerate(names)]
        self.spec = cvataa.DetectionFunctionSpec(labels=specs)

    def detect(self, context: cvataa.DetectionFunctionContext, image: Image.Image) -> list[Any]:
        """Draw the masks of one frame; later classes lie above earlier ones."""
        if context.conv_mask_to_poly:
            raise cvataa.BadFunctionError("polygons would lose holes: leave out --conv-mask-to-poly")
        mask = self.predictor(np.asarray(image.convert("RGB")))
        shapes = []
        for label_id, inside, left, top in self.labels.parts(mask):
            shape = crop_shape(inside, left, top)
            _, _, width, height = shape["box"]
            points = [*shape["counts"], left, top, left + width - 1, top + height - 1]
            shapes.append(cvataa.mask(label_id, points, z_order=label_id))
        return shapes


create = SutureFunction
