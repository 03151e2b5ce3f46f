"""A step in the memory layout and the precision of fast steps learns what a plain one does, within a stated share."""

from copy import deepcopy

import pytest
import torch
from stage_tester import Build, loss_and_gradient, stages_of

from suture.methods.method import methods
from suture.methods.stage import Part
from suture.models.segmenter import set_dropout

OWN = {"twice": "finetune", "pgvcl": "contrast", "pixpro": "propagation", "dmt": "round-1-a"}
"""The stage that is a method's own, where it is not called `train`."""
HEARD = {"uamt": {"train": {"consistency": 500, "threshold": 1}}, "unimatch": {"train": {"confidence": 0}}}
"""So that unlabelled frames have a say at once, with a teacher that has learnt nothing."""


@pytest.mark.parametrize("name", sorted({*methods()} - {"propagate"}))
def test_channels_last_and_bf16_learn_the_same(name: str, tiny_context: Build) -> None:
    """Up to a share of the loss, and of the gradient's length; bf16 rounds what every layer gives to 8 bits."""
    context = tiny_context()
    stage = next(
        stage for stage in stages_of(name, HEARD.get(name, {}), context) if stage.name == OWN.get(name, "train")
    )
    stage.begin(context)
    set_dropout(stage, active=False)  # its draws depend on the order in memory
    batch = stage.render(stage.draw(Part(0, range(8), range(8))))
    state = deepcopy(stage.state_dict())

    plain_loss, plain_gradient = loss_and_gradient(stage, batch, state)
    stage.to(memory_format=torch.channels_last)
    for precision, of_loss, of_gradient in ((torch.float32, 1e-5, 0.01), (torch.bfloat16, 2e-3, 0.25)):
        loss, gradient = loss_and_gradient(stage, batch, state, precision)
        assert loss == pytest.approx(plain_loss, rel=of_loss, abs=of_loss)  # PixPro's is near 0
        assert (gradient - plain_gradient).norm() <= of_gradient * plain_gradient.norm()
    assert loss != plain_loss, "bf16 rounds"
