"""Base class of all training stages, with its settings and its context.

A stage implements `draw`, which chooses the frames, views and keys of a step (a pure function of seed, stage and step,
run in loader workers), and `loss`. Everything random is keyed by (seed, stage, step, place in the global batch). So a
killed run goes on to the same weights, and several processes draw the same global batch as one.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.distributed as dist
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from suture.core.errors import UserError
from suture.core.settings import Settings
from suture.core.workers import start_worker
from suture.data.sampling.augment import Augment, Patches, draw_view
from suture.data.sampling.frames import Epochs, TrainingFrames, generator
from suture.methods.optim import Lars, cosine_warmup, param_groups, poly
from suture.models.compile_blocks import can_compile, compile_blocks, forget_compiled
from suture.models.cuda_graph import CudaGraph
from suture.models.ema import MomentumCopy
from suture.models.segmenter import Segmenter


class OptimizerSettings(Settings):
    """Optimiser and schedule. AdamW, the default, converges in far fewer steps than the paper's SGD."""

    kind: Literal["sgd", "adamw", "lars"] = "adamw"
    """Optimiser."""
    lr: float | None = Field(1e-4, gt=0)
    """Peak learning rate of the encoder; None, with AdamW, is 3e-4, 1e-4 with layer norms, or 2e-5 with `dpt`."""
    decoder_factor: float | None = Field(None, gt=0)
    """Learning rate of the decoder, as a multiple of `lr`; None is 1, or 10 with `dpt` if `lr` is None."""
    head_factor: float | None = Field(None, gt=0)
    """Learning rate of the head, as a multiple of `lr`; None is 5, or 10 with `dpt` if `lr` is None."""
    layer_decay: float = Field(1.0, gt=0, le=1)
    """Learning rate of an encoder's block, as a multiple of that of the next block; 1 is the same rate for all."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum of SGD and LARS."""
    weight_decay: float = Field(0.01, ge=0)
    """Weight decay."""
    trust: float = Field(1e-3, gt=0)
    """LARS: norm of a layer's step divided by that of its weights, at rate 1 and without momentum."""
    schedule: Literal["poly", "cosine"] = "poly"
    """`poly` lowers the rate to 0, `cosine` to 1e-6."""
    power: float = Field(0.9, gt=0)
    """Exponent of the schedule `poly`."""
    warmup_epochs: float = Field(0, ge=0)
    """`cosine`: epochs in which the rate rises from a hundredth; at most half of the stage."""
    clip: float | None = Field(None, gt=0)
    """Largest norm of the gradient."""

    @model_validator(mode="after")
    def _known_rate(self) -> "OptimizerSettings":
        if self.lr is None and self.kind != "adamw":
            raise ValueError(f"lr is needed with {self.kind}: there is a default for adamw only")
        return self

    def rates(self, segmenter: Segmenter) -> tuple[float, float, float]:
        """Peak learning rate of a segmenter's encoder, and those of decoder and head as its multiples."""
        lr, decoder, head = self.lr, 1.0, 5.0
        if lr is None and segmenter.architecture == "dpt":  # a large pretrained encoder, a new decoder
            lr, decoder, head = 2e-5, 10.0, 10.0
        lr = lr or (1e-4 if segmenter.has_layer_norms else 3e-4)
        return lr, self.decoder_factor or decoder, self.head_factor or head


class TrainingSettings(Settings):
    """Length, batch, optimiser and augmentation of one training stage."""

    steps: int | None = Field(1000, ge=1)
    """Length of the stage in steps."""
    epochs: float | None = Field(None, gt=0)
    """Passes over the stage's frames; replaces `steps`."""
    batch: int = Field(8, ge=1)
    """Frames (queries) per step, over all devices and accumulated parts."""
    accumulate: int = Field(1, ge=1)
    """Parts of a batch that are computed one after the other, to save memory."""
    optimizer: OptimizerSettings = OptimizerSettings()
    augment: Augment = Augment()
    best_every: int | None = Field(None, ge=1)
    """Score the validation videos every n steps, and keep the best weights instead of the last."""
    ema: float | None = Field(None, gt=0, lt=1)
    """Momentum of an average of the weights, the stage's outcome; None keeps the last weights."""
    look_back: float = Field(0.1, gt=0, le=1)
    """Share of the steps so far that the average spans at most; earlier weights are much worse."""

    @model_validator(mode="after")
    def _one_length(self) -> "TrainingSettings":
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give either steps or epochs (set the other to null)")
        if self.batch % self.accumulate:
            raise ValueError(f"batch {self.batch} is not divisible by accumulate {self.accumulate}")
        return self

    @property
    def smallest_crop(self) -> float:
        """Smallest side of a crop over all views; it determines the size of stored frames."""
        return min(value.crop[0] for _, value in self if isinstance(value, Augment))

    def total_steps(self, frames: int) -> int:
        """Number of steps, given the number of frames in an epoch."""
        return self.steps if self.steps is not None else max(1, round(self.epochs * frames / self.batch))  # type: ignore[operator]


class OneStageSettings(TrainingSettings):
    """Settings of a method in one stage: as many steps as other methods have in all supervised stages together.

    The learning rate is the encoder's default. Stages of other methods learn at 1e-4, which was better for them.
    """

    steps: int | None = Field(2000, ge=1)
    optimizer: OptimizerSettings = OptimizerSettings(lr=None)


class Total(NamedTuple):
    """Loss as a sum over pixels and its divisor, which is summed over all processes."""

    loss: Tensor
    weight: Tensor
    taught: Tensor | None = None
    """Share of all processes' unlabelled pixels in the loss, for stages that select pixels."""


@dataclass
class StageContext:
    """Inputs of a stage: frames, seed and sizes of the run, and the segmenter of the stage before."""

    frames: TrainingFrames
    segmenter: Segmenter
    size: tuple[int, int]
    seed: int
    shots: list[int] = field(default_factory=list)
    """Shot number of every training frame, unique over videos."""
    folder: Path = Path()
    """Run folder, for pseudo labels."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    autocast: torch.dtype | None = None
    """Precision of inference; None is full precision."""
    workers: int = 0
    compile: bool | None = False
    """Compile the blocks of the networks; None compiles in long stages."""
    capture: bool = False
    """Record a step as a CUDA graph and replay it."""
    rank: int = 0
    world: int = 1


MIN_PIXELS_TO_COMPILE = 8e9
"""Pixels of a stage from which compiling saves time: it takes a minute and saves 1.8 ms per frame of 480×480."""

START = "start"
"""Value of `start_from` for the segmenter at the start of the run."""


class Stage(nn.Module, ABC):
    """A training stage."""

    settings: TrainingSettings
    context: StageContext
    instead: ClassVar[str | None] = None
    """Method to use without unlabelled frames, for stages that need some."""
    labels_alone: bool = False
    """True for stages on labelled frames alone."""
    global_step: int = 0
    """Number of steps done."""
    clock: Tensor
    """Share of the steps that are done, on the device, for losses that change over the stage."""
    last_loss: Tensor
    """Loss of the last step."""
    last_taught: Tensor | None = None
    """Share of the unlabelled pixels in the last loss; None for stages that do not select pixels."""

    def __init__(
        self, name: str, settings: TrainingSettings, *, start_from: str | None = None, key: str | None = None
    ) -> None:
        super().__init__()
        self.register_buffer("clock", torch.zeros(()), persistent=False)
        self.name = name
        self.settings = settings
        self.key = f"method.{key or name}"
        """Section of the config with the settings."""
        self.start_from = start_from
        """Earlier stage whose outcome this one starts from, or START; None is the stage before."""

    # Implemented by methods

    @property
    def batches(self) -> dict[str, int]:
        """Settings that count frames of a step, which processes and accumulated parts divide among them."""
        return {"batch": self.settings.batch}

    def validate_segmenter(self, segmenter: Segmenter) -> None:
        """Raise `UserError` for a segmenter that this stage cannot train; called before anything is written."""

    def hint(self, cases: int, videos: int) -> str | None:
        """Advice for training on this number of cases and videos, printed at the start."""
        return None

    @abstractmethod
    def prepare(self) -> int:
        """Set up networks and frame orders from `self.context`; return the number of frames in an epoch."""

    @abstractmethod
    def draw(self, part: "Part") -> Any:
        """Draw the batch of one part of a step, as tensors on the CPU. A pure function; runs in loader workers."""

    def render(self, batch: Any) -> Any:
        """Turn the output of `draw` into images and labels, on the device, in full precision."""
        return batch

    @abstractmethod
    def loss(self, batch: Any) -> Total:
        """Compute the loss of a rendered batch."""

    def groups(self) -> list[dict[str, Any]]:
        """Parameter groups with their learning rates."""
        decay = self.settings.optimizer.layer_decay
        return param_groups(self.segmenter, self.lr, self.decoder_factor, self.head_factor, decay)

    def on_train_start(self) -> None:
        """Called once before the first step of every start."""

    def after_step(self) -> None:
        """Update momentum copies; called after the weights have moved."""

    # Shared by all stages

    def begin(self, context: StageContext) -> None:
        """Set up the stage for training the context's segmenter."""
        self.context = context
        self.global_step = 0
        self.segmenter = context.segmenter
        self.segmenter.requires_grad_(True)
        self.segmenter.train()
        self.lr, self.decoder_factor, self.head_factor = self.settings.optimizer.rates(self.segmenter)
        self.epoch_frames = self.prepare()
        self.total_steps = self.settings.total_steps(self.epoch_frames)
        self.average = MomentumCopy(self.segmenter, buffers="ema") if self.settings.ema is not None else None
        if self._compiling_pays() if context.compile is None else context.compile:
            compile_blocks(self, strict=context.compile is not None)
        # Gradients of accumulated parts add up, which a graph cannot do.
        self.captured: CudaGraph | None = None
        if context.capture and self.settings.accumulate == 1:
            self.captured = CudaGraph(self)

    def _compiling_pays(self) -> bool:
        pixels = self.total_steps * self.settings.batch * self.context.size[0] * self.context.size[1]
        return self.context.device.type == "cuda" and pixels > MIN_PIXELS_TO_COMPILE and can_compile()

    def end(self) -> None:
        """Free the CUDA graph and the compiled blocks."""
        self.captured = None
        forget_compiled(self)

    @property
    def average_momentum(self) -> float:
        """Momentum of the average: it rises until it reaches `ema`, so that the average spans recent steps only."""
        return min(1 - 1 / (1 + self.settings.look_back * (self.global_step - 1)), self.settings.ema or 0)

    def outcome(self) -> Segmenter:
        """Segmenter for the next stage."""
        return self.average.module if self.average is not None else self.segmenter  # type: ignore[return-value]

    def facts(self) -> dict[str, Any]:
        """Entries of `done.json`: length, rate and frames of the stage.

        Some stages add `supervised_steps`, the steps that taught the final model from labels.
        """
        facts = {"steps": self.total_steps, "batch": self.settings.batch, "lr": self.lr}
        return facts | {"labels_alone": self.labels_alone}

    def rng(self, step: int, place: int | str) -> Any:
        """Random generator of one place in the global batch of a step."""
        return generator(self.context.seed, self.name, step, place)

    def numbers(self, order: Epochs, step: int, places: range) -> list[int]:
        """Frame numbers at places of the global batch of a step."""
        return [order[step * self.settings.batch + place] for place in places]

    def usual_views(self, order: Epochs, part: "Part") -> Patches:
        """Augmented views of the frames at a process's places."""
        numbers = self.numbers(order, part.step, part.own)
        draws = [draw_view(self.rng(part.step, place), self.settings.augment) for place in part.own]
        return self.context.frames.collate(numbers, draws)

    def loader(self, first: int) -> DataLoader[Any]:
        """Batches from step `first` on, prefetched by workers; their number does not change the order."""
        batches = Batches(self, first)
        workers, parent = self.context.workers, os.getpid()
        return DataLoader(
            batches,
            batch_size=None,
            num_workers=workers,
            pin_memory=self.context.device.type == "cuda",
            prefetch_factor=4 if workers else None,
            multiprocessing_context="fork" if workers else None,
            worker_init_fn=lambda _: start_worker(parent),
        )

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Create the optimiser, with the highest learning rate of each group."""
        s = self.settings.optimizer
        if s.kind == "adamw":
            # Not False: then PyTorch would go through the parameters one by one.
            fused = True if self.context.device.type == "cuda" else None
            return torch.optim.AdamW(self.groups(), self.lr, weight_decay=s.weight_decay, fused=fused)
        if s.kind == "sgd":
            return torch.optim.SGD(self.groups(), self.lr, momentum=s.momentum, weight_decay=s.weight_decay)
        return Lars(self.groups(), self.lr, momentum=s.momentum, weight_decay=s.weight_decay, trust=s.trust)

    def lr_factor(self, step: int) -> float:
        """Learning rate of a step as a share of the highest one."""
        s = self.settings.optimizer
        if s.schedule == "poly":
            return poly(step, self.total_steps, s.power)
        warmup = min(round(s.warmup_epochs * self.epoch_frames / self.settings.batch), self.total_steps // 2)
        return cosine_warmup(step, self.total_steps, warmup, end_factor=1e-6 / self.lr)

    def forward(self, batch: Any, part: int) -> Tensor:
        """Compute the loss of one part of a step from a rendered batch, recorded as a CUDA graph if there is one.

        Called by the training loop, or by `DistributedDataParallel` around it.
        """
        # Dropout draws from the global generator. Seeded by step and part, its state needs no checkpoint.
        seed = generator(self.context.seed, self.name, self.global_step, part, self.context.rank).integers(2**62)
        torch.manual_seed(int(seed))
        self.clock.fill_(self.global_step / self.total_steps)
        replayed = self.captured(self.step, batch) if self.captured else None
        self.replayed = replayed is not None
        loss, self.last_loss, *taught = replayed or self.step(batch)
        self.last_taught = taught[0] if taught else None
        return loss

    def step(self, batch: Any) -> tuple[Tensor, ...]:
        """Compute the loss for the gradient, the mean loss over all processes, and `Total.taught` if there is any."""
        total = self.loss(batch)
        # DDP averages gradients over ranks, so the sum over all pixels of all ranks needs the factor `world`.
        count = all_sum(total.weight.detach().float()).clamp(min=1e-12)
        loss, shown = total.loss * (self.context.world / count), all_sum(total.loss.detach()) / count
        return (loss, shown) if total.taught is None else (loss, shown, total.taught)

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of the loss that `forward` returned."""
        if self.captured and self.replayed:
            self.captured.take_gradients()
        else:
            loss.backward()

    def finish_step(self) -> None:
        """Update the averages after the weights have moved."""
        if self.average is not None:
            self.average.update(self.segmenter, self.average_momentum)
        self.after_step()


def one_frame_alone(key: str, architecture: str) -> UserError:
    """Error for one frame at a time: DeepLab's ASPP pools each frame to one value, and batch norm needs two."""
    return UserError(
        f"{key}: {architecture} cannot learn from one frame at a time: raise batch, lower accumulate, or use fewer "
        "processes."
    )


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw weights from a seed, without changing the global random generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


class Part(NamedTuple):
    """Places of one process in the global batch of a step."""

    step: int
    own: range
    """Places of this process."""
    all: range
    """Places of all processes; with accumulation, of one part of the batch."""

    @property
    def rows(self) -> slice:
        """Positions of the own places among all."""
        return slice(self.own.start - self.all.start, self.own.stop - self.all.start)


class Batches(IterableDataset[Any]):
    """Batches of all steps in order, from `first` on, for one rank."""

    def __init__(self, stage: Stage, first: int) -> None:
        self.draw = stage.draw
        s, context = stage.settings, stage.context
        self.first, self.last, self.parts = first, stage.total_steps, s.accumulate
        self.together = s.batch // s.accumulate
        self.share = self.together // context.world
        self.rank = context.rank

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        offset, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        for number in range(self.first * self.parts + offset, self.last * self.parts, stride):
            step, part = divmod(number, self.parts)
            places = range(part * self.together, (part + 1) * self.together)
            yield self.draw(Part(step, places[self.rank * self.share : (self.rank + 1) * self.share], places))


def all_sum(value: Tensor) -> Tensor:
    """Sum over all processes."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        value = value.clone()
        dist.all_reduce(value)
    return value


def all_gather(value: Tensor) -> Tensor:
    """Concatenate equal-sized tensors of all processes along the first axis."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        parts = [torch.empty_like(value) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, value.contiguous())
        return torch.cat(parts)
    return value
