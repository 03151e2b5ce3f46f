"""Starting weights of an encoder: from the hub by name, or from a file that has to fit key by key."""

import difflib
import os
import pickle
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import segmentation_models_pytorch as smp
import timm
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from suture.core.errors import UserError
from suture.core.io import suffix_of
from suture.models.weight_files import FILE_SUFFIXES

Layout = Literal["torchvision", "caffe"]
Normalisation = tuple[tuple[float, ...], tuple[float, ...]]

IMAGENET: Normalisation = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

# What training scripts and wrappers put in front of an encoder's own names.
_PREFIXES = re.compile(r"^((module|model|encoder|backbone|_orig_mod)\.)+")
_WRAPPERS = ("state_dict", "model_state_dict", "model")
# A classifier and the norm before it, which smp and timm cut off when they make an encoder of a classification model.
_HEADS = ("fc", "fc_norm", "head", "head_dist", "classifier", "last_linear", "norm")


def near(name: str, names: Iterable[str]) -> str:
    """The known names most like a mistyped one, as the end of a sentence."""
    matches = difflib.get_close_matches(name.lower(), list(names), n=5, cutoff=0.5)
    return (
        f"did you mean {', '.join(matches)}?" if matches else "see the lists of segmentation-models-pytorch and timm."
    )


def check_encoder(encoder: str) -> None:
    """Refuse an encoder that neither smp nor, with the prefix `tu-`, timm knows."""
    of_timm = timm.list_pretrained() if "." in encoder else timm.list_models()  # NAME.TAG or NAME
    known = [*smp.encoders.encoders, *(f"tu-{name}" for name in of_timm)]
    if encoder in known:
        return
    raise UserError(f"encoder: there is no {encoder!r}; {near(encoder, known)}")


def hub_argument(encoder: str, weights: str) -> str | bool:
    """What smp takes as `encoder_weights` for these weights of the hub; weights it does not offer are refused."""
    if encoder.startswith("tu-"):
        # timm has the choice of weights in the encoder's name, so that there is only yes or no to say.
        offered = ["imagenet", "pretrained"] if timm.is_model_pretrained(encoder[3:]) else []
    else:
        offered = list(smp.encoders.encoders[encoder]["pretrained_settings"])
    if weights not in offered:
        tag = " (other weights of timm are chosen by the encoder's name, NAME.TAG)" if encoder.startswith("tu-") else ""
        raise UserError(
            f"weights: the hub has no {weights!r} for {encoder}, only {', '.join(offered) or 'none'}{tag}; "
            f"give one of these, the path of a file ({', '.join(FILE_SUFFIXES)}), or none to start from nothing."
        )
    return True if encoder.startswith("tu-") else weights


def normalisation(encoder: str, hub_weights: str | None) -> Normalisation:
    """Mean and deviation, per channel of RGB in 0..1, that the encoder's weights were trained with."""
    if encoder.startswith("tu-"):
        settings = timm.get_pretrained_cfg(encoder[3:])
        return (tuple(settings.mean), tuple(settings.std)) if settings else IMAGENET
    if hub_weights is None:  # smp would ask the hub
        return IMAGENET
    settings = smp.encoders.get_preprocessing_params(encoder, hub_weights)
    if settings["input_space"] != "RGB":
        raise UserError(f"encoder: {encoder} with {hub_weights!r} wants {settings['input_space']} images, not RGB.")
    top = settings["input_range"][1]
    return tuple(mean / top for mean in settings["mean"]), tuple(std / top for std in settings["std"])


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file or a checkpoint, unwrapped, floating ones as fp32."""
    if not path.is_file():
        raise UserError(f"weights: {path} is not there; give the path of a file ({', '.join(FILE_SUFFIXES)}).")
    if not os.access(path, os.R_OK):  # of which safetensors says that it is not there
        raise UserError(f"weights: {path} cannot be read (permission denied): make it readable, or give another.")
    content: Any
    try:
        if suffix_of(path) == ".safetensors":
            content = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        # PyTorch goes on with advice for programmers, which would let any code in the file run.
        reason = str(error).splitlines()[0].split(". ")[0] if str(error) else type(error).__name__
        raise UserError(
            f"weights: {path} cannot be read ({reason}); expected a whole .safetensors file, or one that "
            "torch.load(weights_only=True) reads: tensors under their names and nothing else."
        ) from error
    for wrapper in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not content or not all(isinstance(t, Tensor) for t in content.values()):
        raise UserError(
            f"weights: {path} does not hold tensors under their names; save the model's state_dict() there."
        )
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in content.items()}


def load_encoder_weights(encoder: nn.Module, path: Path) -> None:
    """Fill an encoder from a file, every key of it; only a classifier's keys may be left over.

    Names may differ in what wrappers put in front of them (`module.`, `encoder.`, `model.`, `backbone.`).
    """
    found: dict[str, Tensor] = {}
    for name, tensor in read_tensors(path).items():
        if found.setdefault(_bare(name), tensor) is not tensor:
            raise UserError(f"weights: {path} holds {_bare(name)} twice, under different prefixes; keep one of them.")
    own = encoder.state_dict()
    wanted = {_bare(name): name for name in own}
    missing = [bare for bare in wanted if bare not in found and not bare.endswith("num.batches.tracked")]
    surplus = [bare for bare, tensor in found.items() if bare not in wanted and not _is_head(bare, tensor)]
    wrong = [
        f"{wanted[bare]} {list(tensor.shape)} for {list(own[wanted[bare]].shape)}"
        for bare, tensor in found.items()
        if bare in wanted and tensor.shape != own[wanted[bare]].shape
    ]
    problems = [
        _some("missing", [wanted[bare] for bare in missing]),
        _some("unexpected", surplus),
        _some("of another shape", wrong),
    ]
    if any(problems):
        raise UserError(
            f"weights: {path} does not fit the encoder: {'; '.join(filter(None, problems))}. "
            "Give the weights of this very encoder, or the encoder that they belong to."
        )
    # Only what a file lawfully lacks, the batch counters, keeps its present value.
    encoder.load_state_dict(own | {wanted[bare]: tensor for bare, tensor in found.items() if bare in wanted})


def use_caffe_layout(encoder: nn.Module) -> None:
    """Move the stride of every strided bottleneck from its 3×3 convolution to its first 1×1, as in Caffe's ResNets.

    Such weights load and run without it, but with features that are not the ones they were trained for.
    """
    moved = 0
    for block in encoder.modules():
        first, second = getattr(block, "conv1", None), getattr(block, "conv2", None)
        if not (isinstance(first, nn.Conv2d) and isinstance(second, nn.Conv2d) and hasattr(block, "conv3")):
            continue
        if first.kernel_size == (1, 1) and second.stride == (2, 2):
            first.stride, second.stride = (2, 2), (1, 1)
            moved += 1
    if not moved:
        raise UserError(
            "layout: caffe is for ResNets of bottleneck blocks (resnet50 and deeper), and this encoder has none with "
            "its stride in the 3x3 convolution; use torchvision."
        )


def _bare(name: str) -> str:
    """A key without prefixes, and with timm's flattened `stages_0` and the plain `stages.0` made alike."""
    return _PREFIXES.sub("", name).replace("_", ".").lstrip(".")


def _is_head(bare: str, tensor: Tensor) -> bool:
    return tensor.dim() <= 2 and any(bare.startswith(f"{head.replace('_', '.')}.") for head in _HEADS)


def _some(what: str, names: list[str], shown: int = 4) -> str:
    """`3 missing (a, b, ...)`, or nothing."""
    more = ", ..." if len(names) > shown else ""
    return f"{len(names)} {what} ({', '.join(names[:shown])}{more})" if names else ""
