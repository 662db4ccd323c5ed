"""A client small enough to be worked out on paper.

The network is Linear(1, 2) without bias: its parameters are w = (w0, w1), its logits (w0 x, w1 x).
At x = 1 and label 0 the gradient of the cross-entropy is (p0 - 1, p1), with p = softmax(w).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.client import Client, Examples, Steps
from isthmus.engines.loop import gradient
from isthmus.method import Method
from isthmus.models.flat import Flat
from isthmus.task import Task


def vector(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=torch.float64)


def task(**changes: Any) -> Task:
    settings: dict[str, Any] = {
        "model": Flat(lambda: nn.Linear(1, 2, bias=False, dtype=torch.float64)),
        "w0": vector(0.0, 0.0),
        "classes": 2,
        "clients": 2,
        "rounds": 10,
        "epochs": 1,
        "batch_size": 1,
        "lr": 0.1,
        "lr_decay": 1.0,
        "momentum": 0.0,
        "weight_decay": 0.0,
        "seed": 0,
        "clients_per_round": 2,
    }
    return Task(**(settings | changes))


def client(
    method: Method,
    task: Task,
    t: int,
    *,
    x: Sequence[Sequence[float]] = ((1.0,),),
    y: Sequence[int] = (0,),
    u: Sequence[Sequence[float]] = ((),),
) -> Client:
    """A client that visits its examples in order, one a step, with the given uniforms."""
    examples = Examples(torch.tensor(x, dtype=torch.float64), torch.tensor(y))
    rows = [torch.tensor([k]) for k in range(len(y))] * task.epochs
    return Client(
        method,
        task,
        t,
        train=examples,
        validation=examples,
        test=examples,
        n=vector(len(y))[0],
        steps=vector(task.epochs * len(y))[0],
        plan=Steps(rows, torch.tensor(u, dtype=torch.float64), len(y)),
        own=(),
        gradient=gradient,
    )
