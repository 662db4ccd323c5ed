"""One client after another: the engine that the others are checked against."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from isthmus import tree
from isthmus.client import Client, Examples, Steps
from isthmus.cohort import Call, Request, Setting
from isthmus.engines.base import draw, naming, one_thread, steps_per_pass


class Loop:
    """Runs clients one by one, each on one thread, on exactly its own examples."""

    def run(
        self, setting: Setting, call: Call, requests: Iterator[Request]
    ) -> Iterator[tuple[int, Any]]:
        """Yields (client, what the function returned)."""
        for request in requests:
            with one_thread(), naming(call, f"client {request.i}"), torch.no_grad():
                client = handle(setting, call, request)
                result = call.function(client, request.own, *call.shared, *request.each)
            yield request.i, result


def handle(setting: Setting, call: Call, request: Request) -> Client:
    """Makes the handle of one client, with nothing padded."""
    method, task, federation = setting.method, setting.task, setting.federation
    i = request.i
    train, validation, test = (
        Examples(*federation.part(i, name)) for name in ("train", "validation", "test")
    )
    n, size = len(train.y), task.batch_size
    drawn = draw(setting, call, i, n)
    batches = [batch for order in torch.as_tensor(drawn.orders) for batch in order.split(size)]
    dtype = task.w0.dtype
    return Client(
        method,
        task,
        call.t,
        train=train,
        validation=validation,
        test=test,
        n=torch.tensor(n, dtype=dtype),
        steps=torch.tensor(task.epochs * steps_per_pass(n, size), dtype=dtype),
        plan=Steps(batches, torch.as_tensor(drawn.u, dtype=dtype), steps_per_pass(n, size)),
        own=request.own,
        gradient=gradient,
        choice=call.choice,
        kind=setting.kind(i),
    )


def gradient(objective: Callable[[Any], Tensor], w: Any) -> Any:
    """Differentiates by plain autograd, which is faster than torch.func for one client."""
    with torch.enable_grad():
        leaf = tree.map(lambda vector: vector.detach().requires_grad_(), w)
        leaves = list(tree.leaves(leaf))
        parts = iter(torch.autograd.grad(objective(leaf), leaves))
    return tree.map(lambda _: next(parts), leaf)
