"""One client after another: the engine that the others are checked against."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor
from torch.func import grad

from isthmus import tree
from isthmus.client import Batch, Client, Examples, Step, Steps
from isthmus.cohort import Call, Request, Setting
from isthmus.engines.base import draw, naming, one_thread, steps_per_pass
from isthmus.engines.compiled import Compiled
from isthmus.engines.letters import CannotSend
from isthmus.engines.workers import START, Pool


class Loop:
    """Runs clients one by one, each on one thread, on exactly its own examples.

    With more than one worker, resident processes do so side by side; they start with the first
    call that is for several clients.
    """

    def __init__(self, workers: int = 1, compiled: Compiled | None = None, start: str = START):
        self.workers = workers
        self.notes: list[str] = []  # what happened since somebody looked
        self._compiled = compiled
        self._start = start
        self._pool: Pool | None = None
        self._told: set[str] = set()

    def run(
        self, setting: Setting, call: Call, requests: Iterator[Request]
    ) -> Iterator[tuple[int, Any]]:
        """Yields (client, what the function returned)."""
        first = list(islice(requests, 2))
        requests = chain(first, requests)
        if self.workers > 1 and len(first) > 1 and self._serves(setting):
            try:
                yield from self._hired(setting).run(call, requests)
                return
            except CannotSend:  # a function without a name is run here
                pass
            finally:
                if self._pool is not None:
                    self._tell(self._pool.notes)
        for request in requests:
            yield request.i, self.compute(setting, call, request)

    def compute(self, setting: Setting, call: Call, request: Request) -> Any:
        """Runs the function for one client, here."""
        with one_thread(), naming(call, f"client {request.i}"), torch.no_grad():
            client = handle(setting, call, request, self._compiled)
            result = call.function(client, request.own, *call.shared, *request.each)
        if self._compiled is not None:
            self._tell(self._compiled.notes)
        return result

    def answer(self, setting: Setting, call: Call, request: Request) -> tuple[Any, list[str]]:
        """Runs the function for one client, and gives the notes too."""
        result = self.compute(setting, call, request)
        notes, self.notes = self.notes, []
        return result, notes

    def close(self) -> None:
        """Ends the processes; the next call starts new ones."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _tell(self, notes: list[str]) -> None:
        """Takes notes over, each once: several workers may come upon the same."""
        new = [note for note in dict.fromkeys(notes) if note not in self._told]
        self.notes += new
        self._told.update(new)
        notes.clear()

    def _serves(self, setting: Setting) -> bool:
        """Tells whether workers know this setting, or may still be told."""
        pool = self._pool
        return pool is None or all(
            getattr(pool.setting, part) is getattr(setting, part)
            for part in ("method", "task", "federation")
        )

    def _hired(self, setting: Setting) -> Pool:
        if self._pool is None:
            alone = Loop(compiled=self._compiled)
            self._pool = Pool(setting, self.workers, alone.answer, self._start)
        return self._pool


def handle(
    setting: Setting, call: Call, request: Request, compiled: Compiled | None = None
) -> Client:
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
        fold=fold if compiled is None else partial(compiled.fold, n=n),
        choice=call.choice,
        kind=setting.kind(i),
    )


def gradient(objective: Callable[[Any], Tensor], w: Any) -> Any:
    """Differentiates by plain autograd, which is faster than torch.func for one client."""
    if torch.compiler.is_compiling():  # only torch.func can be compiled
        return grad(objective)(w)
    with torch.enable_grad():
        leaf = tree.map(lambda vector: vector.detach().requires_grad_(), w)
        leaves = list(tree.leaves(leaf))
        parts = iter(torch.autograd.grad(objective(leaf), leaves))
    return tree.map(lambda _: next(parts), leaf)


def fold(step: Step, carry: Any, batches: Iterator[Batch]) -> Any:
    """Takes one step after another."""
    for batch in batches:
        carry = step(carry, batch)
    return carry
