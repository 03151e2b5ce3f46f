"""The segmenter: any architecture and encoder of segmentation-models-pytorch, as backbone + classifier."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import segmentation_models_pytorch as smp
import torch
from segmentation_models_pytorch.encoders._efficientnet import MBConvBlock
from timm.layers import DropPath
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd

from suture.core.errors import UserError
from suture.models.atrous import use_atrous
from suture.models.depthwise import SLOW, use_fast_depthwise
from suture.models.hub import hub
from suture.models.output_strides import OUTPUT_STRIDES
from suture.models.pretrained import (
    Layout,
    Normalisation,
    check_encoder,
    hub_argument,
    load_encoder_weights,
    near,
    normalisation,
    use_caffe_layout,
)
from suture.models.weight_files import is_file

ARCHITECTURES = tuple(smp.MODEL_ARCHITECTURES_MAPPING)

# How timm's transformers are told to take images of any size; most encoders need nothing.
_ANY_SIZE: tuple[dict[str, bool], ...] = ({}, {"strict_img_size": False}, {"dynamic_img_size": True})


class Segmenter(nn.Module):
    """Images in, logits of the same size out, in two parts: `backbone` (to the features) and `classifier`.

    Images are float RGB in 0..1, of any size; they are normalised inside, so that nothing else has to be known to use a
    segmenter. For DeepLabV3 the features are the ASPP's output and the classifier is the last two layers.

    >>> segmenter = build_segmenter("deeplabv3", "resnet18", classes=3).eval()
    >>> images = torch.rand(1, 3, 50, 70)
    >>> segmenter.features(images).shape, segmenter(images).shape
    (torch.Size([1, 256, 7, 9]), torch.Size([1, 3, 50, 70]))
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        model: smp.base.SegmentationModel,
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
        self.backbone, self.classifier = _regroup(model, architecture)
        if SLOW:
            use_fast_depthwise(self)
        use_atrous(self)
        self.register_buffer("mean", torch.tensor(normalise[0]).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(normalise[1]).view(1, -1, 1, 1))
        # Sides are padded to a multiple of this, the coarsest grid inside; DPT's decoder halves its encoder's again.
        self.multiple = int(model.encoder.output_stride) * (2 if architecture == "dpt" else 1)
        self.features_channels, self.stride, self.has_active_dropout = self._probe()

    def forward(self, images: Tensor) -> Tensor:
        """B 3 H W -> logits, B classes H W."""
        return self.classify(self.features(images), images.shape[-2:])

    def features(self, images: Tensor, factors: Tensor | None = None) -> Tensor:
        """B 3 H W -> B D h w with h = ceil(H / stride): what a projector and the classifier read.

        Given factors, B × the encoder's channels, they multiply what the encoder hands to its decoder.
        """
        height, width = images.shape[-2:]
        images = (images - self.mean) / self.std
        below, right = -height % self.multiple, -width % self.multiple
        if below or right:
            images = F.pad(images, (0, right, 0, below), mode="replicate")
        return self.backbone(images, factors)[..., : -(-height // self.stride), : -(-width // self.stride)]

    def classify(self, features: Tensor, size: tuple[int, ...]) -> Tensor:
        """Features -> logits of `size` (H, W), the size of the images that the features are of."""
        logits = self.classifier(features)
        if self.stride > 1:
            covered = [side * self.stride for side in logits.shape[-2:]]
            logits = F.interpolate(logits, covered, mode="bilinear", align_corners=False)
        return logits[..., : size[0], : size[1]]

    @property
    def has_layer_norms(self) -> bool:
        """Whether the encoder does: then it is a transformer, or made and pre-trained like one."""
        return any(isinstance(module, nn.LayerNorm) for module in self.backbone.encoder.modules())

    def describe(self) -> dict[str, Any]:
        """All but the weights, as plain values for a JSON file; `from_description` builds the same again."""
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
        """A segmenter with random weights, of the kind that `describe` told."""
        try:
            settings = {
                key: description[key] for key in ("architecture", "encoder", "classes", "output_stride", "layout")
            }
            normalise = tuple(description["mean"]), tuple(description["std"])
        except KeyError as error:
            raise UserError(f"The description of the segmenter lacks {error}: was it written by Suture?") from error
        segmenter, _ = _assemble(**settings, normalise=normalise)
        return segmenter

    def _probe(self) -> tuple[int, int, bool]:
        """Channels of the features, their stride, and whether some dropout acts in train mode, from a look at them.

        Only dropout that images pass through counts: encoders hold some that was for classifying whole images. And
        stochastic depth is none: it leaves out layers as a whole.
        """
        met: list[float] = []
        dropouts = [module for module in self.modules() if isinstance(module, _DropoutNd)]
        hooks = [module.register_forward_hook(lambda module, *_: met.append(module.p)) for module in dropouts]
        side = self.multiple * (8 if self.architecture == "pan" else 2)  # PAN pools thrice more
        self.eval()
        with torch.no_grad():
            features = self.backbone(torch.zeros(1, 3, side, side))
            self.classifier(features)
        self.train()
        for hook in hooks:
            hook.remove()
        stride = side // features.shape[-1]
        if self.multiple % stride:  # an encoder of timm that takes the output stride, but not to heart
            raise ValueError(f"its features come at stride {stride}")
        return features.shape[1], stride, any(rate > 0 for rate in met)


def build_segmenter(
    architecture: str = "deeplabv3",
    encoder: str = "resnet50",
    classes: int = 2,
    output_stride: int | None = None,
    weights: str | Path | None = None,
    layout: Layout = "torchvision",
) -> Segmenter:
    """Build a segmenter; decoder and classifier start at random, the encoder from `weights`.

    - `architecture`, `encoder`: names of segmentation-models-pytorch, of timm with the prefix `tu-`.
    - `output_stride`: of the encoder; none is the architecture's usual one (8 for DeepLabV3).
    - `weights`: a name on the hub (`imagenet`), a file (.safetensors, .pth), or none.
    - `layout`: `caffe` for ResNet weights trained with the stride in the first 1×1 convolution of a block.
    """
    architecture = architecture.lower()
    if architecture not in ARCHITECTURES:
        raise UserError(
            f"architecture: there is no {architecture!r}, expected one of {', '.join(ARCHITECTURES)}; "
            f"{near(architecture, ARCHITECTURES)}"
        )
    check_encoder(encoder)
    if classes < 1:
        raise UserError(f"classes: {classes} found, expected at least 1.")
    if layout not in ("torchvision", "caffe"):
        raise UserError(f"layout: {layout!r} found, expected torchvision or caffe.")
    output_stride = _output_stride(architecture, output_stride)
    segmenter, options = _assemble(architecture, encoder, classes, output_stride, layout, normalisation(encoder, None))
    if weights is None:
        return segmenter
    if is_file(weights):
        load_encoder_weights(segmenter.backbone.encoder, Path(weights))
    else:
        _load_from_hub(segmenter, str(weights), options)
    return segmenter


def set_dropout(module: nn.Module, active: bool) -> None:
    """Switch all dropout and stochastic depth below `module` on or off, until its next `train()` or `eval()`."""
    for part in module.modules():
        if isinstance(part, _DropoutNd | DropPath | MBConvBlock):
            part.training = active  # not of what is below: EfficientNet's blocks hold batch norms too


class Backbone(nn.Module):
    """Encoder and decoder in one: normalised images, of sides that the encoder takes, to the last features."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.channels = sum(cast(Sequence[int], encoder.out_channels))
        """How many the encoder hands to its decoder, over all levels."""

    def forward(self, images: Tensor, factors: Tensor | None = None) -> Tensor:
        found = self.encoder(images)
        # DPT's encoder gives two lists, levels and prefix tokens.
        levels, *tokens = found if isinstance(found, tuple) else (found,)
        if factors is not None:
            parts = factors.split([level.shape[1] for level in levels], 1)
            levels = [level * part[..., None, None].to(level.dtype) for level, part in zip(levels, parts, strict=True)]
        return self.decoder(levels, *tokens)


class _OfLastLevel(nn.Sequential):
    """Layers on the encoder's last level: what remains of DeepLabV3's decoder."""

    def forward(self, levels: list[Tensor]) -> Tensor:
        return super().forward(levels[-1])


def _regroup(model: smp.base.SegmentationModel, architecture: str) -> tuple[Backbone, nn.Sequential]:
    """Part a model of smp where the paper does; its final upsampling is left to the segmenter."""
    head, decoder = model.segmentation_head, model.decoder
    last = head.head if architecture == "dpt" else head[0]
    if architecture != "deeplabv3":
        return Backbone(model.encoder, decoder), nn.Sequential(OrderedDict(head=last))
    classifier = nn.Sequential(OrderedDict(conv=decoder.conv, bn=decoder.bn, relu=decoder.relu, head=last))
    return Backbone(model.encoder, _OfLastLevel(OrderedDict(aspp=decoder.aspp))), classifier


def _assemble(
    architecture: str, encoder: str, classes: int, output_stride: int | None, layout: Layout, normalise: Normalisation
) -> tuple[Segmenter, dict[str, Any]]:
    """A segmenter with random weights, and the options for smp that it took."""
    options: dict[str, Any] = {} if output_stride is None else {"encoder_output_stride": output_stride}
    errors = []
    for any_size in _ANY_SIZE if encoder.startswith("tu-") else _ANY_SIZE[:1]:
        try:
            model = smp.create_model(architecture, encoder, None, classes=classes, **options, **any_size)
            segmenter = Segmenter(model, architecture, encoder, classes, output_stride, layout, normalise)
        except Exception as error:
            errors.append(error)
            continue
        if layout == "caffe":
            use_caffe_layout(segmenter.backbone.encoder)
        return segmenter, options | any_size
    # An option that the encoder does not know tells less than what went wrong without it.
    cause = next((error for error in reversed(errors) if not isinstance(error, TypeError)), errors[0])
    at = "" if output_stride is None else f" at output stride {output_stride}"
    raise UserError(
        f"encoder: {encoder} does not go with {architecture}{at} ({_first_line(cause)}); choose another pair."
    ) from cause


def _load_from_hub(segmenter: Segmenter, weights: str, options: Mapping[str, Any]) -> None:
    """Fill the encoder, and the normalisation that belongs to it, with weights of the hub."""
    encoder = segmenter.encoder_name
    argument = hub_argument(encoder, weights)
    try:
        with hub():
            model = smp.create_model(segmenter.architecture, encoder, argument, classes=segmenter.classes, **options)
    except UserError:
        raise
    except Exception as error:  # the same was built without weights before, so that only the hub can have failed
        raise UserError(
            f"weights: {weights!r} for {encoder} could not be had from the hub ({_first_line(error)}); "
            "check the network, or set model.weights to the path of a weights file, or to null for random weights."
        ) from error
    segmenter.backbone.encoder.load_state_dict(model.encoder.state_dict())
    mean, std = normalisation(encoder, weights)
    segmenter.mean.copy_(torch.tensor(mean).view_as(segmenter.mean))
    segmenter.std.copy_(torch.tensor(std).view_as(segmenter.std))


def _output_stride(architecture: str, asked: int | None) -> int | None:
    offered = OUTPUT_STRIDES.get(architecture)
    if offered is None:
        if asked is not None:
            raise UserError(
                f"output_stride: {architecture} has no choice of it and {asked} was asked for; leave it out, or take "
                f"one of {', '.join(OUTPUT_STRIDES)}."
            )
        return None
    if asked is None:
        return offered[0]
    if asked not in offered:
        raise UserError(f"output_stride: {asked} found, expected {offered[0]} or {offered[1]} for {architecture}.")
    return asked


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
