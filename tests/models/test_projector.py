import torch
from torch import nn

from suture.models.projector import Projector


def test_layers_and_unit_length() -> None:
    projector = Projector(16, hidden=32, out=8)
    kinds = [type(layer) for layer in projector.layers]
    assert kinds == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.Conv2d]
    assert all(layer.kernel_size == (1, 1) for layer in projector.layers if isinstance(layer, nn.Conv2d))
    out = projector(torch.randn(2, 16, 5, 7))
    assert out.shape == (2, 8, 5, 7)
    torch.testing.assert_close(out.norm(dim=1), torch.ones(2, 5, 7))
    out[:, 0].sum().backward()
    assert all(parameter.grad is not None for parameter in projector.parameters())


def test_autocast_gives_unit_length_in_fp32() -> None:
    projector = Projector(16, hidden=32, out=8)
    with torch.autocast("cpu", torch.bfloat16):
        out = projector(torch.randn(2, 16, 5, 7))
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.norm(dim=1), torch.ones(2, 5, 7))


def test_channels_last_is_kept() -> None:
    projector = Projector(16, hidden=32, out=8).to(memory_format=torch.channels_last)
    out = projector(torch.randn(2, 16, 5, 7).to(memory_format=torch.channels_last))
    assert out.is_contiguous(memory_format=torch.channels_last)
