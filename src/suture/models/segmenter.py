"""Segmenter: any architecture and encoder of segmentation-models-pytorch (smp), as encoder + decoder + head.

Every encoder of smp and, with the prefix `tu-`, of timm works by its name. To add another one, write its module in this
folder and its entry in `smp.encoders.encoders` in this file.
"""

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import segmentation_models_pytorch as smp
import torch
from segmentation_models_pytorch.encoders._efficientnet import MBConvBlock
from timm.layers import DropPath
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd

from suture.core.errors import UserError
from suture.models import OUTPUT_STRIDES
from suture.models.convolutions import replace_convolutions
from suture.models.dpt import Dpt
from suture.models.encoder_weights import (
    Layout,
    Normalisation,
    hub_access,
    hub_argument,
    load_encoder_weights,
    normalisation,
    suggest,
    use_caffe_layout,
    validate_encoder,
)
from suture.models.model_files import is_weights_file

ARCHITECTURES = tuple(smp.MODEL_ARCHITECTURES_MAPPING)

# Options by which timm's transformers take images of any size; most encoders need none.
_ANY_SIZE: tuple[dict[str, bool], ...] = ({}, {"strict_img_size": False}, {"dynamic_img_size": True})


class Segmenter(nn.Module):
    """Network from images to logits of the same size: `encoder`, `decoder` and `head`.

    Images are float RGB in 0..1, of any size; they are normalised inside. The decoder's output are the *features*. As
    in the PGV-CL paper, DeepLabV3's decoder is its ASPP and the head is its last two layers.

    >>> segmenter = build_segmenter("deeplabv3", "resnet18", classes=3).eval()
    >>> images = torch.rand(1, 3, 50, 70)
    >>> segmenter.features(images).shape, segmenter(images).shape
    (torch.Size([1, 256, 7, 9]), torch.Size([1, 3, 50, 70]))
    """

    mean: Tensor
    std: Tensor
    freeze_encoder: bool = False
    """Keep the encoder's weights and batch statistics; set by `build_segmenter`."""

    def __init__(
        self,
        model: smp.base.SegmentationModel | Dpt,
        architecture: str,
        encoder: str,
        classes: int,
        output_stride: int | None,
        layout: Layout,
        normalise: Normalisation,
    ) -> None:
        super().__init__()
        self.architecture = architecture
        self.encoder_name = encoder
        self.classes = classes
        self.output_stride = output_stride
        self.layout = layout
        self.encoder = model.encoder
        self.decoder, self.head = _split_decoder(model, architecture)
        replace_convolutions(self)
        self.register_buffer("mean", torch.tensor(normalise[0]).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(normalise[1]).view(1, -1, 1, 1))
        # Sides are padded to a multiple of the coarsest grid.
        self.multiple = int(getattr(model, "multiple", model.encoder.output_stride))
        self.features_channels, self.stride, self.has_active_dropout = self._probe()

    def train(self, mode: bool = True) -> "Segmenter":
        """Switch to train mode, except for a frozen encoder."""
        super().train(mode)
        if self.freeze_encoder:
            self.encoder.eval()
        return self

    def requires_grad_(self, requires_grad: bool = True) -> "Segmenter":
        """Let all weights learn or not, except for those of a frozen encoder."""
        super().requires_grad_(requires_grad)
        if self.freeze_encoder:
            self.encoder.requires_grad_(False)
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B classes H W) of images (B 3 H W)."""
        # Cropped last, so that logits at the border are those of a padded image.
        return self.classify(self._decode(self._prepare(images)), images.shape[-2:])

    def levels(self, images: Tensor) -> list[Tensor]:
        """Levels of the encoder for images B 3 H W, padded to multiples of `multiple`."""
        levels: list[Tensor] = self.encoder(self._prepare(images))
        return levels

    def features(self, images: Tensor, factors: Tensor | None = None) -> Tensor:
        """Output of the decoder, B D h w with h = ceil(H / stride), for images B 3 H W.

        Args:
            factors: B × the encoder's channels; multiplied with the output of the encoder.
        """
        height, width = images.shape[-2:]
        features = self._decode(self._prepare(images), factors)
        return features[..., : -(-height // self.stride), : -(-width // self.stride)]

    def _prepare(self, images: Tensor) -> Tensor:
        """Normalised images, padded to multiples of `multiple`."""
        images = (images - self.mean) / self.std
        below, right = (-side % self.multiple for side in images.shape[-2:])
        if below or right:
            images = F.pad(images, (0, right, 0, below), mode="replicate")
        return images

    def _decode(self, images: Tensor, factors: Tensor | None = None) -> Tensor:
        """Features of normalised images whose sides are multiples of `multiple`."""
        levels = self.encoder(images)
        if factors is not None:
            parts = factors.split([level.shape[1] for level in levels], 1)
            levels = [level * part[..., None, None].to(level.dtype) for level, part in zip(levels, parts, strict=True)]
        features: Tensor = self.decoder(levels)
        return features

    def classify(self, features: Tensor, size: tuple[int, ...]) -> Tensor:
        """Logits of `size` (H, W), the size of the images, from their features."""
        logits = self.head(features)
        if self.stride > 1:
            covered = [side * self.stride for side in logits.shape[-2:]]
            logits = F.interpolate(logits, covered, mode="bilinear", align_corners=False)
        return logits[..., : size[0], : size[1]]

    @property
    def has_layer_norms(self) -> bool:
        """True for encoders with layer norms: transformers, and networks made and pre-trained like them."""
        return any(isinstance(module, nn.LayerNorm) for module in self.encoder.modules())

    def describe(self) -> dict[str, Any]:
        """All but the weights, as plain values for JSON; the argument of `from_description`."""
        return {
            "architecture": self.architecture,
            "encoder": self.encoder_name,
            "classes": self.classes,
            "output_stride": self.output_stride,
            "layout": self.layout,
            "mean": [round(value, 6) for value in self.mean.flatten().tolist()],
            "std": [round(value, 6) for value in self.std.flatten().tolist()],
        }

    @staticmethod
    def from_description(description: Mapping[str, Any]) -> "Segmenter":
        """Build the segmenter of a `describe()`, with random weights."""
        settings = dict(description)
        try:
            normalise = tuple(settings.pop("mean")), tuple(settings.pop("std"))
            segmenter, _ = _assemble(**settings, normalise=normalise)
        except (KeyError, TypeError) as error:
            raise UserError(f"The description of the segmenter is not one that Suture wrote ({error}).") from error
        return segmenter

    def _probe(self) -> tuple[int, int, bool]:
        """Channels and stride of the features, and if any dropout acts in train mode, from one forward pass.

        Only dropout that images pass through counts: encoders also hold some for classifying whole images.
        """
        rates: list[float] = []
        dropouts = [module for module in self.modules() if isinstance(module, _DropoutNd)]
        hooks = [module.register_forward_hook(lambda module, *_: rates.append(module.p)) for module in dropouts]
        side = self.multiple * (8 if self.architecture == "pan" else 2)  # PAN pools three times more
        self.eval()
        with torch.no_grad():
            features = self._decode(torch.zeros(1, 3, side, side))
            self.head(features)
        self.train()
        for hook in hooks:
            hook.remove()
        stride = side // features.shape[-1]
        if self.multiple % stride:  # some encoders of timm accept `output_stride` but ignore it
            raise ValueError(f"its features come at stride {stride}")
        return features.shape[1], stride, any(rate > 0 for rate in rates)


def build_segmenter(
    architecture: str = "deeplabv3",
    encoder: str = "resnet50",
    classes: int = 2,
    output_stride: int | None = None,
    weights: str | Path | None = None,
    layout: Layout = "torchvision",
    *,
    freeze_encoder: bool = False,
    gradient_checkpointing: bool = False,
) -> Segmenter:
    """Build a segmenter with random weights in decoder and head, and `weights` in the encoder.

    Args:
        architecture: Name in segmentation-models-pytorch.
        encoder: Name in segmentation-models-pytorch, or `tu-` and a name in timm.
        output_stride: Stride of the encoder's last level; None is the architecture's default (8 for DeepLabV3).
        weights: Name on the hub (`imagenet`), path of a file (.safetensors, .pth), or None for random weights.
        layout: `caffe` for ResNet weights trained with the stride in the first 1×1 convolution of a block.
        freeze_encoder: Train decoder and head only.
        gradient_checkpointing: Compute the encoder's blocks again in the backward pass, to save memory.
    """
    architecture = architecture.lower()
    if architecture not in ARCHITECTURES:
        raise UserError(f"architecture: there is no {architecture!r}; {suggest(architecture, ARCHITECTURES)}")
    validate_encoder(encoder)
    if classes < 1:
        raise UserError(f"classes: {classes} found, expected at least 1.")
    if layout not in ("torchvision", "caffe"):
        raise UserError(f"layout: {layout!r} found, expected torchvision or caffe.")
    offered = OUTPUT_STRIDES.get(architecture, (None,))
    if output_stride is None:
        output_stride = offered[0]
    if output_stride not in offered:
        choice = " or ".join(map(str, offered)) if architecture in OUTPUT_STRIDES else "none"
        raise UserError(f"output_stride: {output_stride} found, expected {choice} for {architecture}.")
    segmenter, options = _assemble(architecture, encoder, classes, output_stride, layout, normalisation(encoder, None))
    if weights is not None and is_weights_file(weights):
        load_encoder_weights(segmenter.encoder, Path(weights))
    elif weights is not None:
        _load_from_hub(segmenter, str(weights), options)
    segmenter.freeze_encoder = freeze_encoder
    if gradient_checkpointing:
        _checkpoint_blocks(segmenter)
    return segmenter.requires_grad_().train()


def _checkpoint_blocks(segmenter: Segmenter) -> None:
    """Turn on timm's gradient checkpointing."""
    for module in segmenter.encoder.modules():
        if hasattr(module, "set_grad_checkpointing"):
            module.set_grad_checkpointing()
            return
    raise UserError(
        f"model.gradient_checkpointing: {segmenter.encoder_name} has none; choose an encoder of timm (tu-NAME)."
    )


def set_dropout(module: nn.Module, active: bool) -> None:
    """Switch all dropout and stochastic depth below `module` on or off, until its next `train()` or `eval()`."""
    for part in module.modules():
        if isinstance(part, _DropoutNd | DropPath | MBConvBlock):
            part.training = active  # not of its children: EfficientNet's blocks hold batch norms too


class _LastLevelDecoder(nn.Sequential):
    """Decoder that reads the encoder's last level only, for DeepLabV3."""

    def forward(self, levels: list[Tensor]) -> Tensor:
        return super().forward(levels[-1])


def _create_model(
    architecture: str, encoder: str, weights: str | bool | None, classes: int, **options: Any
) -> smp.base.SegmentationModel | Dpt:
    """Model of smp, or `Dpt`, whose encoder has these weights of the hub."""
    if architecture == "dpt":
        return Dpt(encoder, weights, classes, **options)
    return smp.create_model(architecture, encoder, weights, classes=classes, **options)


def _split_decoder(model: smp.base.SegmentationModel | Dpt, architecture: str) -> tuple[nn.Module, nn.Module]:
    """Decoder and head of a model, without its final upsampling."""
    head: Any = model.segmentation_head
    decoder: Any = model.decoder
    if isinstance(model, Dpt):
        return decoder, head
    if architecture != "deeplabv3":
        return decoder, nn.Sequential(OrderedDict(classifier=head[0]))
    layers = OrderedDict(conv=decoder.conv, bn=decoder.bn, relu=decoder.relu, classifier=head[0])
    return _LastLevelDecoder(OrderedDict(aspp=decoder.aspp)), nn.Sequential(layers)


def _assemble(
    architecture: str, encoder: str, classes: int, output_stride: int | None, layout: Layout, normalise: Normalisation
) -> tuple[Segmenter, dict[str, Any]]:
    """Segmenter with random weights, and the options of smp that built it."""
    options: dict[str, Any] = {} if output_stride is None else {"encoder_output_stride": output_stride}
    errors = []
    for any_size in _ANY_SIZE if encoder.startswith("tu-") else _ANY_SIZE[:1]:
        try:
            model = _create_model(architecture, encoder, None, classes, **options, **any_size)
            segmenter = Segmenter(model, architecture, encoder, classes, output_stride, layout, normalise)
        except Exception as error:
            errors.append(error)
            continue
        if layout == "caffe":
            use_caffe_layout(segmenter.encoder)
        return segmenter, options | any_size
    # A TypeError is about an option that the encoder does not have; the other errors say more.
    cause = next((error for error in reversed(errors) if not isinstance(error, TypeError)), errors[0])
    at = "" if output_stride is None else f" at output stride {output_stride}"
    raise UserError(
        f"encoder: {encoder} does not go with {architecture}{at} ({_first_line(cause)}). Vision transformers need "
        "model.architecture=dpt; upernet takes most others."
    ) from cause


def _load_from_hub(segmenter: Segmenter, weights: str, options: Mapping[str, Any]) -> None:
    """Load weights of the hub into the encoder, with their normalisation."""
    encoder = segmenter.encoder_name
    argument = hub_argument(encoder, weights)
    try:
        with hub_access():
            model = _create_model(segmenter.architecture, encoder, argument, segmenter.classes, **options)
    except UserError:
        raise
    except Exception as error:  # the network itself was built before, so only the hub can have failed
        raise UserError(
            f"weights: {weights!r} for {encoder} cannot be had from the hub ({_first_line(error)}). "
            "Check the network, or set model.weights to the path of a weights file, or to null for random weights."
        ) from error
    segmenter.encoder.load_state_dict(model.encoder.state_dict())
    mean, std = normalisation(encoder, weights)
    segmenter.mean.copy_(torch.tensor(mean).view_as(segmenter.mean))
    segmenter.std.copy_(torch.tensor(std).view_as(segmenter.std))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
