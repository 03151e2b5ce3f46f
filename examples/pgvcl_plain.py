"""PGV-CL (Yu et al., IROS 2022) on one page: its three stages in plain PyTorch and torchvision.

    python examples/pgvcl_plain.py FOLDER --classes 12 --every 20

FOLDER/frames/VIDEO/NAME.png are frames, FOLDER/masks/VIDEO/NAME.png their masks: class ids, 255 where ignored.
Every n-th frame of a video counts as labelled. Equation numbers are the paper's. All frames are kept in memory;
`suture train` does the same for real datasets, and faster.
"""

import argparse
import copy
import math
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import default_collate
from torchvision.models.segmentation import deeplabv3_resnet50
from torchvision.transforms import ColorJitter, InterpolationMode
from torchvision.transforms import functional as tf

IGNORE, STRIDE = 255, 8
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Frames:
    """All frames of a folder, in memory: images (N 3 H W), labels (N H W), videos, shots."""

    def __init__(self, folder: Path, size: int, every: int) -> None:
        images, labels, self.video, self.shot, self.labelled = [], [], [], [], []
        for number, video in enumerate(sorted((folder / "frames").iterdir())):
            files = sorted(video.iterdir())
            pictures = [np.array(Image.open(file).convert("RGB").resize((size, size))) for file in files]
            shots = find_shots(pictures)
            for place, (file, picture) in enumerate(zip(files, pictures, strict=True)):
                mask = folder / "masks" / video.name / f"{file.stem}.png"
                known = place % every == 0 and mask.exists()
                ids = np.array(Image.open(mask).resize((size, size), Image.Resampling.NEAREST)) if known else None
                labels.append(torch.full((size, size), IGNORE) if ids is None else torch.tensor(ids).long())
                images.append(torch.tensor(picture).permute(2, 0, 1) / 255)
                self.labelled.append(known)
                self.video.append(number)
                self.shot.append((number, shots[place]))
        self.images, self.labels = torch.stack(images), torch.stack(labels)

    def keys(self, query: int, same_shot: int = 1, other_videos: int = 4) -> list[int]:
        """Key frames of a query: the frame itself, frames of its shot, frames of other videos."""
        everything = range(len(self.video))
        shot = [i for i in everything if self.shot[i] == self.shot[query] and i != query] or [query]
        others = [i for i in everything if self.video[i] != self.video[query]]
        return [query, *random.choices(shot, k=same_shot), *(random.choices(others, k=other_videos) if others else [])]

    def view(self, number: int) -> tuple[Tensor, Tensor]:
        """Random crop, flip and colours of a frame; labels at the centres of the feature grid's cells."""
        size = self.images.shape[-1]
        side = round(random.uniform(0.3, 0.7) * size)
        box = (random.randint(0, size - side), random.randint(0, size - side), side, side)
        image = tf.resized_crop(self.images[number], *box, [size, size])
        label = tf.resized_crop(self.labels[number][None], *box, [size, size], InterpolationMode.NEAREST)[0]
        if random.random() < 0.5:
            image, label = image.flip(-1), label.flip(-1)
        return ColorJitter(0.4, 0.4, 0.2, 0.1)(image), label[STRIDE // 2 :: STRIDE, STRIDE // 2 :: STRIDE]


def find_shots(pictures: list[np.ndarray], threshold: float = 0.3) -> np.ndarray:
    """Shot number of each frame: a new shot begins where the intensity histogram changes by more than the threshold."""
    counts = np.array([np.histogram(picture.mean(-1), 64, (0, 255))[0] for picture in pictures])
    changes = np.abs(np.diff(counts, axis=0)).sum(1) / (2 * pictures[0][..., 0].size)
    return np.cumsum([0, *(changes > threshold)])


class Segmenter(nn.Module):
    """DeepLabV3-ResNet50 in the paper's parts: the backbone is encoder and ASPP, the classifier the last two layers."""

    def __init__(self, classes: int, pretrained: bool = True) -> None:
        super().__init__()
        network = deeplabv3_resnet50(
            weights=None, weights_backbone="IMAGENET1K_V1" if pretrained else None, num_classes=classes, aux_loss=False
        )
        self.encoder, self.aspp = network.backbone, network.classifier[0]
        self.head = nn.Sequential(*list(network.classifier)[1:])

    def features(self, images: Tensor) -> Tensor:
        return self.aspp(self.encoder(tf.normalize(images, MEAN, STD))["out"])

    def forward(self, images: Tensor) -> Tensor:
        return F.interpolate(self.head(self.features(images)), images.shape[-2:], mode="bilinear")


class Branch(nn.Module):
    """Backbone and projector: embeddings of unit length."""

    def __init__(self, segmenter: Segmenter, hidden: int = 512, channels: int = 256) -> None:
        super().__init__()
        self.segmenter = segmenter
        self.projector = nn.Sequential(
            nn.Conv2d(256, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU(), nn.Conv2d(hidden, channels, 1)
        )

    def forward(self, images: Tensor) -> Tensor:
        return F.normalize(self.projector(self.segmenter.features(images)), dim=1)


def contrast_losses(query: Tensor, labels: Tensor, keys: Tensor, key_labels: Tensor) -> Tensor:
    """Loss of each pixel of one query frame (D h w, labels h w) with its key frames (K D h w, labels K h w)."""
    labels, key_labels = labels.flatten(), key_labels.flatten(1)
    similarity = torch.einsum("dn,kdm->knm", query.flatten(1), keys.flatten(2))  # (1), with unit vectors
    known = (key_labels != IGNORE)[:, None]
    positive = (labels[:, None] == key_labels[:, None]) & known  # (2)
    negative = ~positive & known
    positives, negatives = positive.sum((0, 2)).clamp(min=1), negative.sum(2).clamp(min=1)
    s_p = (similarity * positive).sum((0, 2)) / positives  # (4): mean over all key frames together
    s_n = ((similarity * negative).sum(2) / negatives).sum(0)  # (3), (5): sum of the key frames' means
    losses = -torch.log(s_p.exp() / (s_p.exp() + s_n.exp()))  # (6)
    return losses[(labels != IGNORE) & positive.any(2).any(0)]


class LARS(torch.optim.Optimizer):
    """SGD with momentum; the step of a layer is proportional to the norm of its weights."""

    def __init__(self, params, lr: float, momentum: float = 0.9, weight_decay: float = 1e-5, trust: float = 1e-3):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                gradient = p.grad
                if p.ndim > 1:  # biases and batch norms are neither decayed nor adapted
                    gradient = gradient + group["weight_decay"] * p
                    gradient = gradient * (group["trust"] * p.norm() / (gradient.norm() + 1e-8))
                velocity = self.state[p].setdefault("velocity", torch.zeros_like(p))
                velocity.mul_(group["momentum"]).add_(gradient)
                p.sub_(group["lr"] * velocity)


def contrast_step(online, momentum, optimizer, queries, query_labels, keys, key_labels, m: float) -> float:
    """One step for Q queries (Q 3 H W, labels Q h w) with K keys each (Q K 3 H W, labels Q K h w)."""
    embeddings = online(queries)
    with torch.no_grad():
        key_embeddings = momentum(keys.flatten(0, 1)).unflatten(0, keys.shape[:2])
    losses = [contrast_losses(*one) for one in zip(embeddings, query_labels, key_embeddings, key_labels, strict=True)]
    loss = torch.cat(losses).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(momentum.parameters(), online.parameters(), strict=True):
            slow.lerp_(fast, 1 - m)
    return loss.item()


def ohem(logits: Tensor, labels: Tensor, threshold: float = 0.7, keep: float = 1 / 16) -> Tensor:
    """Cross entropy of the hard pixels: true class below the threshold, but at least a share of each image."""
    losses = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="none").flatten(1)
    kept = []
    for loss, known in zip(losses, labels.flatten(1) != IGNORE, strict=True):
        worst = loss[known].sort(descending=True).values
        kept.append(worst[: max(math.ceil(len(worst) * keep), int((worst > -math.log(threshold)).sum()))])
    return torch.cat(kept).mean()


def train_supervised(segmenter: Segmenter, frames: Frames, loss, steps: int, batch: int) -> None:
    """Stages 1 and 3: SGD with a poly schedule on the labelled frames."""
    segmenter.train().requires_grad_(True)
    optimizer = torch.optim.SGD(segmenter.parameters(), 1e-3, momentum=0.9, weight_decay=1e-4)
    labelled = [i for i, known in enumerate(frames.labelled) if known]
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 1e-3 * (1 - step / steps) ** 0.9
        numbers = random.choices(labelled, k=batch)
        images, labels = frames.images[numbers], frames.labels[numbers]
        if random.random() < 0.5:
            images, labels = images.flip(-1), labels.flip(-1)
        optimizer.zero_grad()
        loss(segmenter(images), labels).backward()
        optimizer.step()


@torch.no_grad()
def predict_pseudo_labels(segmenter: Segmenter, frames: Frames) -> None:
    """Label every unlabelled frame with the pre-trained network; ground truth stays on the others."""
    segmenter.eval()
    for number, known in enumerate(frames.labelled):
        if not known:
            frames.labels[number] = segmenter(frames.images[number][None])[0].argmax(0)


def train_contrast(segmenter: Segmenter, frames: Frames, steps: int, batch: int) -> None:
    """Stage 2: contrast of all training frames; the head rests, and dropout is off."""
    segmenter.train().head.requires_grad_(False)
    online = Branch(segmenter)
    momentum = copy.deepcopy(online).requires_grad_(False)
    for module in [*online.modules(), *momentum.modules()]:
        if isinstance(module, nn.Dropout):
            module.eval()
    optimizer = LARS([p for p in online.parameters() if p.requires_grad], lr=1.0)
    for step in range(steps):
        cosine = (1 + math.cos(math.pi * step / steps)) / 2
        optimizer.param_groups[0]["lr"] = cosine * min(1.0, 0.01 + 25 * step / steps)  # with warm-up
        queries = random.choices(range(len(frames.images)), k=batch)
        images, labels = default_collate([frames.view(query) for query in queries])
        key_views = [default_collate([frames.view(number) for number in frames.keys(query)]) for query in queries]
        keys, key_labels = default_collate(key_views)
        contrast_step(online, momentum, optimizer, images, labels, keys, key_labels, m=1 - 0.01 * cosine)


def main(arguments: list[str] | None = None) -> Segmenter:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--classes", type=int, required=True)
    parser.add_argument("--every", type=int, default=20, help="every n-th frame of a video is labelled")
    parser.add_argument("--size", type=int, default=480)
    parser.add_argument("--steps", type=int, nargs=3, default=(1000, 5000, 1000), help="of the three stages")
    parser.add_argument("--random-weights", action="store_true", help="instead of ImageNet's")
    parser.add_argument("--out", type=Path, default=Path("pgvcl.pt"))
    o = parser.parse_args(arguments)
    torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    frames = Frames(o.folder, o.size, o.every)
    segmenter = Segmenter(o.classes, not o.random_weights)
    train_supervised(segmenter, frames, nn.CrossEntropyLoss(ignore_index=IGNORE), o.steps[0], 8)
    predict_pseudo_labels(segmenter, frames)
    train_contrast(segmenter, frames, o.steps[1], 4)
    train_supervised(segmenter, frames, ohem, o.steps[2], 8)
    torch.save(segmenter.state_dict(), o.out)
    return segmenter


if __name__ == "__main__":
    main()
