"""Starting weights of an encoder: from the hub by name, or from a file."""

import difflib
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies

import segmentation_models_pytorch as smp
import timm
from huggingface_hub import constants
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from suture.core.errors import UserError
from suture.core.io import require_regular_file, suffix_of
from suture.models.dpt import VitEncoder
from suture.models.model_files import WEIGHTS_SUFFIXES
from suture.models.torch_file import read_torch_file

Layout = Literal["torchvision", "caffe"]
Normalisation = tuple[tuple[float, ...], tuple[float, ...]]

IMAGENET: Normalisation = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

MAX_SHOWN_KEYS = 4
# Prefixes that training scripts and wrappers put before an encoder's own names.
_PREFIXES = re.compile(r"^((module|model|encoder|backbone|_orig_mod)\.)+")
_WRAPPERS = ("state_dict", "model_state_dict", "model")
# Classifiers and the norms before them, which smp and timm remove from a classification model.
_CLASSIFIERS = ("fc", "fc.norm", "head", "head.dist", "classifier", "last.linear", "norm")


def suggest(name: str, names: Iterable[str]) -> str:
    """Known names like a mistyped one, as the end of a sentence."""
    matches = difflib.get_close_matches(name.lower(), list(names), n=5, cutoff=0.5)
    return f"did you mean {', '.join(matches)}?" if matches else "see segmentation-models-pytorch and timm for names."


def validate_encoder(encoder: str) -> None:
    """Require an encoder of smp or, with the prefix `tu-`, of timm."""
    timm_names = timm.list_pretrained() if "." in encoder else timm.list_models()  # NAME.TAG or NAME
    known = [*smp.encoders.encoders, *(f"tu-{name}" for name in timm_names)]
    if encoder not in known:
        raise UserError(f"encoder: there is no {encoder!r}; {suggest(encoder, known)}")


def hub_argument(encoder: str, weights: str) -> str | bool:
    """Value of smp's `encoder_weights` for these weights of the hub."""
    if encoder.startswith("tu-"):  # timm chooses weights by the encoder's name
        offered = ["imagenet", "pretrained"] if timm.is_model_pretrained(encoder[3:]) else []
    else:
        offered = list(smp.encoders.encoders[encoder]["pretrained_settings"])
    if weights not in offered:
        tag = " (timm's other weights: encoder NAME.TAG)" if encoder.startswith("tu-") else ""
        raise UserError(
            f"weights: the hub has no {weights!r} for {encoder}, only {', '.join(offered) or 'none'}{tag}; "
            f"or give the path of a file ({', '.join(WEIGHTS_SUFFIXES)})."
        )
    return True if encoder.startswith("tu-") else weights


def hub_licence(encoder: str) -> str | None:
    """Licence of an encoder's weights on the hub; known for encoders of timm only.

    >>> hub_licence("tu-vit_small_patch14_dinov2")
    'apache-2.0'
    """
    settings = timm.get_pretrained_cfg(encoder.removeprefix("tu-")) if encoder.startswith("tu-") else None
    return settings.license if settings else None


def normalisation(encoder: str, hub_weights: str | None) -> Normalisation:
    """Mean and deviation of RGB in 0..1 that the encoder's weights were trained with."""
    if encoder.startswith("tu-"):
        settings = timm.get_pretrained_cfg(encoder[3:])
        return (tuple(settings.mean), tuple(settings.std)) if settings else IMAGENET
    if hub_weights is None:  # smp would ask the hub
        return IMAGENET
    settings = smp.encoders.get_preprocessing_params(encoder, hub_weights)
    if settings["input_space"] != "RGB":
        raise UserError(f"encoder: {encoder} with {hub_weights!r} needs {settings['input_space']} images, not RGB.")
    top = settings["input_range"][1]
    return tuple(mean / top for mean in settings["mean"]), tuple(std / top for std in settings["std"])


@contextmanager
def hub_access() -> Iterator[None]:
    """Use the cache alone if the hub cannot be reached: its library would try again for half a minute."""
    host = urlsplit(constants.ENDPOINT).hostname or ""
    # Behind a proxy, this machine need not resolve any names.
    if constants.HF_HUB_OFFLINE or getproxies() or _resolves(host):
        yield
        return
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "huggingface_hub":
            raise
        raise UserError(
            f"model.weights: not on this machine yet, and {host} cannot be reached. Check the network, or set "
            "model.weights to the path of a weights file, or to null for random weights."
        ) from None  # the library's message has sixty lines
    finally:
        constants.HF_HUB_OFFLINE = False


def _resolves(host: str) -> bool:
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a .safetensors file or a checkpoint, unwrapped, floating ones as fp32."""
    content: Any
    if suffix_of(path) == ".safetensors":
        require_regular_file(path)
        try:
            content = load_file(path)
        except (SafetensorError, RuntimeError, OSError, ValueError, KeyError) as error:
            raise UserError(f"weights: {path} cannot be read ({str(error)[:120]}): put back a whole copy.") from error
    else:
        content = read_torch_file(path)
    for wrapper in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    entries = content.items() if isinstance(content, Mapping) else ()
    if not entries or not all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in entries):
        raise UserError(f"weights: {path} holds no state_dict(): tensors by name.")
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in content.items()}


def load_encoder_weights(encoder: nn.Module, path: Path) -> None:
    """Fill every weight of an encoder from a file; of the file, only a classifier may be left over.

    Names may have the prefixes of wrappers (`module.`, `encoder.`, `model.`, `backbone.`). A vision transformer's names
    may be those of its authors, and its position grid may have another size. A decoder for pretraining is left over.
    """
    tensors: dict[str, Tensor] = {}
    content = read_tensors(path)
    if isinstance(encoder, VitEncoder):
        content = encoder.convert({_PREFIXES.sub("", name): tensor for name, tensor in content.items()})
    for name, tensor in content.items():
        if tensors.setdefault(_bare(name), tensor) is not tensor:
            raise UserError(f"weights: {path} holds {_bare(name)} twice, under different prefixes; keep one of them.")
    own = encoder.state_dict()
    expected = {_bare(name): name for name in own}
    fitting = {expected[bare]: tensor for bare, tensor in tensors.items() if bare in expected}
    problems = {
        "missing": [
            name for bare, name in expected.items() if bare not in tensors and not bare.endswith("num.batches.tracked")
        ],
        "unexpected": [
            bare for bare, tensor in tensors.items() if bare not in expected and not _is_classifier(bare, tensor)
        ],
        "of another shape": [
            f"{name} {list(tensor.shape)} for {list(own[name].shape)}"
            for name, tensor in fitting.items()
            if tensor.shape != own[name].shape
        ],
    }
    listed = [
        f"{len(names)} {problem} ({', '.join(names[:MAX_SHOWN_KEYS])}{', ...' if len(names) > MAX_SHOWN_KEYS else ''})"
        for problem, names in problems.items()
        if names
    ]
    if listed:
        raise UserError(f"weights: {path} does not fit the encoder: {'; '.join(listed)}.")
    encoder.load_state_dict(own | fitting)


def use_caffe_layout(encoder: nn.Module) -> None:
    """Move the stride of every strided bottleneck from its 3×3 convolution to its first 1×1, as in Caffe's ResNets.

    Without it such weights load and run, but give other features than those they were trained for.
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
        raise UserError("layout: caffe is for ResNets of bottleneck blocks (resnet50 and deeper); use torchvision.")


def _bare(name: str) -> str:
    """Key without prefixes, alike for timm's flattened `stages_0` and the plain `stages.0`."""
    return _PREFIXES.sub("", name).replace("_", ".").lstrip(".")


def _is_classifier(bare: str, tensor: Tensor) -> bool:
    return tensor.dim() <= 2 and any(bare.startswith(f"{name}.") for name in _CLASSIFIERS)
