"""Batch norms folded into the convolutions before them: the same values, and only where nothing else looks."""

from copy import deepcopy

import pytest
import torch
from timm.layers import StdConv2d
from torch import Tensor, nn

from suture.models.fold_batch_norms import fold_batch_norms
from suture.models.segmenter import build_segmenter

SIZE = 128, 128


def with_statistics(network: nn.Module) -> nn.Module:
    """As after training, ready to be used."""
    generator = torch.Generator().manual_seed(0)
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            for values, low, high in (
                (part.running_mean, -0.2, 0.2),
                (part.running_var, 0.5, 2),
                (part.weight, 0.5, 1.5),
                (part.bias, -0.2, 0.2),
            ):
                values.data.uniform_(low, high, generator=generator)
    return network.eval()


def norms(network: nn.Module) -> int:
    return sum(isinstance(part, nn.BatchNorm2d) for part in network.modules())


@pytest.mark.parametrize(
    ("architecture", "encoder", "left"),
    [
        ("deeplabv3", "resnet18", 0),
        ("deeplabv3plus", "tu-test_resnet", 0),
        ("pan", "tu-mobilenetv3_large_100", 0),
        ("upernet", "tu-sam2_hiera_tiny", 0),
        ("unet", "tu-tf_efficientnet_lite0", 0),
        ("fpn", "tu-resnetv2_50", 16),  # those before an activation, whose input goes on beside them
    ],
)
def test_values_stay_what_they_are(architecture: str, encoder: str, left: int) -> None:
    torch.manual_seed(0)
    network = with_statistics(build_segmenter(architecture, encoder, 4))
    folded = deepcopy(network)
    fold_batch_norms(folded, torch.zeros(1, 3, *SIZE))
    assert norms(network) > norms(folded) == left
    images = torch.rand(2, 3, *SIZE)
    with torch.inference_mode():
        expected, found = network(images), folded(images)
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()


class Seen(nn.Module):
    """What a convolution gives goes to a batch norm, and elsewhere too."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.convolution, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        found = self.convolution(x)
        if self.how == "beside":
            return found + self.norm(found)
        if self.how == "changed":
            found += x
            return self.norm(found)
        return self.norm(found) + self.norm(self.convolution(2 * x))


@pytest.mark.parametrize("how", ["beside", "changed", "again"])
def test_nothing_is_folded_where_something_else_sees_it(how: str) -> None:
    network = with_statistics(Seen(how))
    fold_batch_norms(network, torch.zeros(1, 3, 8, 8))
    assert norms(network) == 1


def test_nothing_is_folded_into_weights_that_are_standardised_first() -> None:
    network = with_statistics(nn.Sequential(StdConv2d(3, 4, 3), nn.BatchNorm2d(4)))
    fold_batch_norms(network, torch.zeros(1, 3, 8, 8))
    assert norms(network) == 1
