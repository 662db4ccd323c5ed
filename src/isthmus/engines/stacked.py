"""Blocks of clients as one tensor program: `torch.func.vmap` over the rows of a cohort.

Clients of a block are padded to the largest of them: in examples, in batches per pass, in the last
batch. Padded examples weigh 0; a client whose pass has ended waits with weights and momentum
frozen. Which clients share a block is fixed by the experiment (its cohorts and its `block`), so a
run repeats to the bit.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from isthmus import tree
from isthmus.client import Batch, Client, Examples, StepFunction, Steps
from isthmus.context import Call, Engine, Request, RunContext
from isthmus.engines.base import (
    Plan,
    RandomPart,
    draw,
    one_thread,
    steps_per_pass,
    weigh_examples,
    wrap_errors,
)
from isthmus.engines.devices import Place
from isthmus.engines.loop import fold
from isthmus.errors import IsthmusError

VECTORS_PER_CLIENT = 6  # of P parameters: weights, momentum, gradient, and what a step computes
CACHE_BYTES = 12 << 20  # of the last level
DEVICE_BLOCK_BYTES = 1 << 30  # on a device that is not the CPU
LARGEST_BLOCK = 256  # clients in a block

Fold = Callable[[StepFunction, Any, Iterator[Batch]], Any]


def count_block(parameters: int, device: str) -> int:
    """Count the clients, of so many parameters each, that stay in cache together."""
    room = CACHE_BYTES if device == "cpu" else DEVICE_BLOCK_BYTES
    return max(1, min(LARGEST_BLOCK, room // (4 * VECTORS_PER_CLIENT * parameters)))


class ClientBlock(NamedTuple):
    """The padded data and steps of K clients."""

    train: Examples  # [K, n, ...]
    validation: Examples
    test: Examples
    n: Tensor  # [K]
    steps: Tensor  # [K]
    rows: Tensor  # [K, steps, B]
    u: Tensor  # [K, steps, D]
    weight: Tensor  # [K, steps, B]


class Stacked(Engine):
    """Runs `block` clients at a time."""

    def __init__(self, block: int, device: str = "cpu", take_steps: Fold = fold):
        self.block = block
        self.take_steps = take_steps
        self.place = Place(device)
        self.notes: list[str] = []

    @classmethod
    def make(cls, plan: Plan) -> "Stacked":
        """Make the engine of a run whose networks treat examples apart."""
        if plan.mixes_examples:
            raise IsthmusError(
                "engine=stacked pads batches, and the model's batch normalisation would count the "
                "padding; set engine=loop, or choose a model without batch normalisation"
            )
        if plan.random:
            raise IsthmusError(
                "engine=stacked computes many clients as one, which excludes models that draw "
                "random numbers (dropout); set engine=loop, or choose a model without dropout"
            )
        return cls(plan.block or count_block(plan.parameters, plan.device), plan.device)

    def run(
        self, context: RunContext, call: Call, requests: Iterator[Request]
    ) -> Iterator[tuple[int, Any]]:
        """Yield (client, what the function returned)."""
        while members := list(islice(requests, self.block)):
            # Clients of another kind hold states of another shape, which cannot be stacked.
            for kind in dict.fromkeys(context.kind(member.i) for member in members):
                alike = [member for member in members if context.kind(member.i) == kind]
                yield from self._run_block(context, call, kind, alike)

    def describe(self, why: str = "") -> str:
        """Describe how many clients are computed at a time; its steps run in one way only."""
        return f"stacked, {self.block} clients at a time"

    def _run_block(
        self, context: RunContext, call: Call, kind: int, members: Sequence[Request]
    ) -> Iterator[tuple[int, Any]]:
        place, method, task = self.place, context.method, self.place.move_task(context.task)
        shared = place.send(call.shared)
        per_pass = max(
            steps_per_pass(context.federation.sizes(member.i)[0], task.batch_size)
            for member in members
        )

        def run_one(block: ClientBlock, own: Any, each: tuple[Any, ...]) -> Any:
            client = Client(
                method,
                task,
                call.t,
                part=partial(getattr, block),
                n=block.n,
                steps=block.steps,
                plan=lambda: Steps(list(block.rows.unbind(0)), block.u, per_pass, block.weight),
                own=own,
                gradient=lambda objective, w: grad(objective)(w),
                fold=lambda step, carry, batches: self.take_steps(wait(step), carry, batches),
                choice=call.choice,
                kind=kind,
            )
            return call.function(client, own, *shared, *each)

        ids = [member.i for member in members]
        with one_thread(), wrap_errors(call, f"clients {ids}"), torch.no_grad():
            given = place.send(
                (
                    stack(context, call, ids, per_pass),
                    tree.stack([member.find_own(context) for member in members]),
                    tree.stack([member.each for member in members]),
                )
            )
            with place.activate():
                results = vmap(run_one, randomness="error")(*given)
            results = place.fetch(results)
        for k, i in enumerate(ids):
            yield i, tree.row(results, k)


def wait(step: StepFunction) -> StepFunction:
    """Return a step that leaves clients unchanged whose pass has ended."""

    def take(carry: Any, batch: Batch) -> Any:
        assert batch.weight is not None
        going = batch.weight.sum() > 0  # else it waits until others have ended theirs
        return tree.map(partial(torch.where, going), step(carry, batch), carry)

    return take


def stack(context: RunContext, call: Call, ids: Sequence[int], per_pass: int) -> ClientBlock:
    """Pad and stack the data and the steps of a block's clients."""
    task, federation = context.task, context.federation
    sizes = [federation.sizes(i)[0] for i in ids]
    random = [draw(context, call, i, n) for i, n in zip(ids, sizes, strict=True)]
    plans = [
        _pad_steps(one, n, task.batch_size, per_pass) for one, n in zip(random, sizes, strict=True)
    ]
    rows, u, weight = (torch.stack(parts) for parts in zip(*plans, strict=True))
    dtype = task.w0.dtype
    return ClientBlock(
        train=_stack_examples(context, ids, "train"),
        validation=_stack_examples(context, ids, "validation"),
        test=_stack_examples(context, ids, "test"),
        n=torch.tensor(sizes, dtype=dtype),
        steps=torch.tensor(
            [task.epochs * steps_per_pass(n, task.batch_size) for n in sizes], dtype=dtype
        ),
        rows=rows,
        u=u.to(dtype),
        weight=weight.to(dtype),
    )


def _pad_steps(
    random: RandomPart, n: int, size: int, per_pass: int
) -> tuple[Tensor, Tensor, Tensor]:
    passes = len(random.orders)
    steps = steps_per_pass(n, size)
    slots = per_pass * size - n  # empty places at the end of each pass
    rows = pad(torch.as_tensor(random.orders), (0, slots)).view(passes * per_pass, size)
    weight = pad(torch.ones(passes, n), (0, slots)).view(passes * per_pass, size)
    u = torch.as_tensor(random.u).view(passes, steps, -1)
    filler = u.new_zeros(passes, per_pass - steps, u.shape[2])  # torch 2.6 cannot pad no columns
    u = torch.cat([u, filler], 1).view(passes * per_pass, u.shape[2])
    return rows, u, weight


def _stack_examples(context: RunContext, ids: Sequence[int], name: str) -> Examples:
    parts = [context.federation.split(i, name) for i in ids]
    trained = zip(ids, parts, strict=True) if name == "train" else ()
    counts = [weigh_examples(context, i, part.y) for i, part in trained]
    importance = [one for one in counts if isinstance(one, Tensor)]
    return Examples(
        pad_sequence([part.x for part in parts], batch_first=True),
        pad_sequence([part.y for part in parts], batch_first=True),
        pad_sequence([torch.ones(len(part.y)) for part in parts], batch_first=True),
        pad_sequence(importance, batch_first=True) if importance else (),
    )
