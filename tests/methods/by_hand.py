"""A client small enough to be worked out on paper.

The network is Linear(1, 2) without bias: its parameters are w = (w0, w1), its logits (w0 x, w1 x).
At x = 1 and label 0 the gradient of the cross-entropy is (p0 - 1, p1), with p = softmax(w).
"""

from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from isthmus import tree
from isthmus.client import Client, Examples, Steps
from isthmus.engines.loop import fold, gradient
from isthmus.method import Method
from isthmus.models.flat import Flat
from isthmus.shelf import Shelf
from isthmus.task import Task


class Cohort:
    """Clients worked out on paper, as a method's server sees them; it keeps their own states."""

    def __init__(self, method: Method, task: Task, clients: Sequence[Client]):
        self.method, self.task, self.clients = method, task, clients
        self.t, self.total, self.ids = clients[0].t, task.clients, list(range(len(clients)))
        self.own = [method.own(task, i) for i in self.ids]
        self.rounds, self.shelf = task.rounds, Shelf()

    def map(self, f: Any, *shared: Any, each: Any = None) -> tuple[Tensor, Any]:
        replies = []
        for i, client in enumerate(self.clients):
            received = (*shared, each(i)) if each else shared
            self.own[i], reply = f(copy(client), self.own[i], *received)  # a copy has all its steps
            replies.append(reply)
        return torch.tensor(self.ids), tree.stack(replies)

    def after(self, count: int, server: Any = None) -> Any:
        server = self.method.init(self.task) if server is None else server
        for _ in range(count):
            server = self.method.round(server, self)  # type: ignore[arg-type]
        return server


def chain() -> Flat:
    """One weight, then two: parameters (b, h0, h1), logits (h0 b x, h1 b x); the head is (h0, h1).

    At label 0 the gradient is (h @ d, b d) x with d = (p0 - 1, p1) and p = softmax of the logits.
    """
    return Flat(
        lambda: nn.Sequential(
            nn.Linear(1, 1, bias=False, dtype=torch.float64),
            nn.Linear(1, 2, bias=False, dtype=torch.float64),
        )
    )


def parabola(client: Client, a: float, b: float) -> Client:
    """Gives a client another loss: a / 2 |z - b|^2, whose gradient is a (z - b)."""
    client.loss = lambda z, batch: a / 2 * (z - b).square().sum()  # type: ignore[method-assign]
    return client


def vector(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=torch.float64)


def task(**changes: Any) -> Task:
    settings: dict[str, Any] = {
        "model": Flat(lambda: nn.Linear(1, 2, bias=False, dtype=torch.float64)),
        "w0": vector(0.0, 0.0),
        "classes": 2,
        "features": 1,
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
    x = x if len(x) == len(y) else [x[0]] * len(y)
    examples = Examples(torch.tensor(x, dtype=torch.float64), torch.tensor(y))
    rows = [torch.tensor([k]) for k in range(len(y))] * method.passes(task)
    u = u if len(u) == len(rows) else [u[0]] * len(rows)
    return Client(
        method,
        task,
        t,
        part=lambda _: examples,
        n=vector(len(y))[0],
        steps=vector(task.epochs * len(y))[0],
        plan=lambda: Steps(rows, torch.tensor(u, dtype=torch.float64), len(y)),
        own=(),
        gradient=gradient,
        fold=fold,
    )
