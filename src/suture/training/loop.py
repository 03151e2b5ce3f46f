"""TrainingLoop: the optimiser steps of one stage, in one process or several."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves, tree_map_only

from suture.methods.stage import Stage


class Callback:
    """Hooks around the steps of a `TrainingLoop`; each does nothing unless a subclass overrides it."""

    def on_start(self, loop: "TrainingLoop") -> None:
        """Run once, before the first step of this start."""

    def on_step_start(self, loop: "TrainingLoop") -> None:
        """Run before each step."""

    def on_step_end(self, loop: "TrainingLoop") -> None:
        """Run after each step; the weights have moved and `loop.step` counts the step."""

    def on_end(self, loop: "TrainingLoop") -> None:
        """Run once, after the last step."""

    def on_close(self, loop: "TrainingLoop") -> None:
        """Run once at the very end, also after an error."""


class TrainingLoop:
    """Trains a stage from its current step to its last one.

    A step is one move of the weights. Its batch is drawn in `accumulate` parts, whose gradients add up. The state
    between two steps is complete: a loop that loads it goes on to the same weights, bit for bit.

    Args:
        stage: The stage, after `begin`.
        callbacks: Called in this order.

    Example:
        >>> stage.begin(context)  # doctest: +SKIP
        >>> TrainingLoop(stage, [ProgressCallback("train", console)]).run()  # doctest: +SKIP
    """

    def __init__(self, stage: Stage, callbacks: Sequence[Callback] = ()) -> None:
        self.stage = stage
        self.callbacks = callbacks
        self.should_stop = False
        context = stage.context
        self.device, self.is_first = context.device, context.rank == 0
        on_gpu = self.device.type == "cuda"
        torch.backends.cudnn.benchmark = on_gpu
        stage.to(self.device)
        self.model: nn.Module = stage
        if context.world > 1:
            # With synchronised batch norm all processes have equal buffers. Broadcasting them at every step would be
            # needless, and slow for a bank of many frames.
            synchronised = nn.SyncBatchNorm.convert_sync_batchnorm(stage) if on_gpu else stage
            devices = [self.device] if on_gpu else None
            self.model = DistributedDataParallel(synchronised, devices, broadcast_buffers=not on_gpu)
        self.optimizer = stage.make_optimizer()
        self.learning_rates = [group["lr"] for group in self.optimizer.param_groups]
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=context.autocast == torch.float16)

    @property
    def step(self) -> int:
        """Number of steps done."""
        return self.stage.global_step

    def state_dict(self) -> dict[str, Any]:
        """State between two steps: tensors and plain values."""
        return {
            "global_step": self.step,
            "state_dict": self.stage.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state that `state_dict` returned."""
        self.stage.global_step = state["global_step"]
        self.stage.load_state_dict(state["state_dict"])
        self.optimizer.load_state_dict(state["optimizer"])
        for parameter, moments in self.optimizer.state.items():
            if any(isinstance(one, Tensor) and one.ndim and one.shape != parameter.shape for one in moments.values()):
                raise ValueError("the optimiser's state has other shapes than the weights")
        self.scaler.load_state_dict(state["scaler"])

    def run(self) -> None:
        """Do all remaining steps, or as many as the callbacks allow."""
        try:
            self.stage.on_train_start()
            self._call("on_start")
            # Closed here, also after a signal: loader processes that end later would print a traceback.
            with closing(iter(DeviceBatches(self.stage.loader(self.step), self.device))) as batches:
                while self.step < self.stage.total_steps and not self.should_stop:
                    self._call("on_step_start")
                    self._do_step(batches)
                    self._call("on_step_end")
            self._call("on_end")
        finally:
            self._call("on_close")
        self.stage.to("cpu")  # frees the GPU for the next stage

    def _call(self, hook: str) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(self)

    def _do_step(self, batches: Iterator[Any]) -> None:
        stage, optimizer = self.stage, self.optimizer
        parts, clip = stage.settings.accumulate, stage.settings.optimizer.clip
        for group, rate in zip(optimizer.param_groups, self.learning_rates, strict=True):
            group["lr"] = rate * stage.lr_factor(self.step)
        for part in range(parts):
            self._do_part(next(batches), part)
        if clip is not None:
            self.scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], clip)
        self.scaler.step(optimizer)
        self.scaler.update()
        stage.global_step += 1
        stage.finish_step()

    def _do_part(self, batch: Any, part: int) -> None:
        """Add the gradients of one part of a batch; processes share them after the last part."""
        stage, parts = self.stage, self.stage.settings.accumulate
        images = stage.render(batch)
        synchronise: AbstractContextManager[Any] = nullcontext()
        if isinstance(self.model, DistributedDataParallel) and part + 1 < parts:
            synchronise = self.model.no_sync()
        with synchronise:
            with torch.autocast(self.device.type, stage.context.autocast, stage.context.autocast is not None):
                loss = self.model(images, part)
            if part == 0:
                self.optimizer.zero_grad()
            stage.backward(self.scaler.scale(loss / parts))


class DeviceBatches:
    """Batches on the device; a GPU receives each while it still computes the step before."""

    def __init__(self, batches: Iterable[Any], device: torch.device) -> None:
        self.batches = batches
        self.device = device

    def __iter__(self) -> Generator[Any, None, None]:
        if self.device.type != "cuda":
            for batch in self.batches:
                yield tree_map_only(Tensor, lambda tensor: tensor.to(self.device), batch)
            return
        copying, before = torch.cuda.Stream(self.device), None
        for batch in self.batches:
            computing = torch.cuda.current_stream(self.device)
            if before is not None:
                before.synchronize()  # waits for the step before last: at most two batches are on the device
            before = computing.record_event()
            with torch.cuda.stream(copying):
                sent = tree_map_only(Tensor, lambda tensor: tensor.to(self.device, non_blocking=True), batch)
            computing.wait_stream(copying)
            for tensor in tree_leaves(sent):
                if isinstance(tensor, Tensor):
                    tensor.record_stream(computing)
            yield sent
