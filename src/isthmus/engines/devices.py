"""Where client functions compute: on the CPU, or on another device that torch finds here.

What a function is given goes there before it runs, and what it returns comes back: the server's
side of a method, stores and messages are on the CPU, whatever the device.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor
from torch.backends import cudnn

from isthmus import tree
from isthmus.errors import IsthmusError
from isthmus.task import Task

T = TypeVar("T")


class Place:
    """A device, and the task of a run as it is there."""

    def __init__(self, device: str = "cpu"):
        self.device = torch.device(device)
        self._moved: tuple[Task, Task] | None = None

    @property
    def on_cpu(self) -> bool:
        """Whether it is the CPU, where everything is to begin with."""
        return self.device.type == "cpu"

    def send(self, things: T) -> T:
        """Copy the tensors of a tree to the device."""
        return things if self.on_cpu else _convert(things, lambda one: one.to(self.device))

    def fetch(self, things: T) -> T:
        """Copy the tensors of a tree to the CPU."""
        return things if self.on_cpu else _convert(things, lambda one: one.cpu())

    def move_task(self, task: Task) -> Task:
        """Return a task whose networks and start are on the device; they are moved once."""
        if self.on_cpu:
            return task
        if self._moved is None or self._moved[0] is not task:
            others = tuple(other.to(self.device) for other in task.others)
            model, w0 = task.model.to(self.device), task.w0.to(self.device)
            self._moved = task, replace(task, model=model, w0=w0, others=others)
        return self._moved[1]

    @contextmanager
    def activate(self) -> Iterator[None]:
        """Make new tensors on the device, and compute there as exactly as on the CPU."""
        if self.on_cpu:
            yield
        elif self.device.type == "cuda":
            with self.device, cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
                yield
        else:
            with self.device:
                yield


def _convert(things: T, convert: Callable[[Tensor], Tensor]) -> T:
    return tree.map(lambda thing: convert(thing) if isinstance(thing, Tensor) else thing, things)


def list_devices() -> list[str]:
    """List the devices that torch finds here."""
    cuda = [f"cuda:{k}" for k in range(torch.cuda.device_count())]
    return ["cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else [])]


def check(device: str) -> None:
    """Raise an error for a device that is not here."""
    if device == "cpu":  # without asking drivers, which may take seconds
        return
    present = list_devices()
    if device not in present and (device != "cuda" or "cuda:0" not in present):
        raise IsthmusError(
            f"device={device} is not available; torch finds {', '.join(present)} here; set one of "
            "these, or install a version of torch for the device"
        )
