"""One client after another: the engine that the others are checked against."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor
from torch.func import grad

from isthmus import tree
from isthmus.client import Batch, Client, Examples, StepFunction, Steps
from isthmus.context import Call, Engine, Request, RunContext
from isthmus.engines import messages
from isthmus.engines import profile as spent
from isthmus.engines.base import (
    Plan,
    draw,
    one_thread,
    own_randomness,
    split_order,
    steps_per_pass,
    weigh_examples,
    wrap_errors,
)
from isthmus.engines.compiled import Compiled
from isthmus.engines.devices import Place
from isthmus.engines.pool import Answer, Pool
from isthmus.engines.profile import Profile
from isthmus.engines.workers import START_METHOD, ProcessPool, choose_workers

HERE, UNWATCHED = Place(), Profile()


class Loop(Engine):
    """Runs clients one by one, each on one thread, on exactly its own examples.

    With more than one worker, resident processes do so side by side; they start with the first
    call that is for several clients. On another device than the CPU this process computes.
    """

    compiles = True

    def __init__(
        self,
        workers: int = 1,
        compiled: Compiled | None = None,
        start: str = START_METHOD,
        device: str = "cpu",
    ):
        self.place = Place(device)
        self._workers = workers if self.place.on_cpu else 1  # what drives a device survives no fork
        self.notes: list[str] = []
        self.compiled = compiled
        self._start = start
        self.profile = Profile()
        self._pool: Pool | None = None
        self._reported: set[str] = set()

    @classmethod
    def make(cls, plan: Plan) -> "Loop":
        """Make the engine of a run, which compiles steps where the plan says so."""
        compiled = Compiled.make(plan) if plan.step == "compiled" else None
        return cls(plan.workers or choose_workers(plan), compiled, device=plan.device)

    @property
    def workers(self) -> int:
        """How many processes compute."""
        return self._workers

    def run(
        self, context: RunContext, call: Call, requests: Iterator[Request]
    ) -> Iterator[tuple[int, Any]]:
        """Yield (client, what the function returned)."""
        first = list(islice(requests, 2))
        requests = chain(first, requests)
        if self.delegates(len(first)) and self._pool_knows(context):
            try:
                yield from self.get_pool(context).run(call, requests)
                return
            except messages.CannotSend:  # a function without a name runs here
                pass
            finally:
                if self._pool is not None:
                    self._report(self._pool.notes)
        for request in requests:
            yield request.i, self.compute(context, call, request)

    def compute(self, context: RunContext, call: Call, request: Request) -> Any:
        """Run the function for one client, here."""
        profile = self.profile if call.purpose == "train" else UNWATCHED
        make = profile.measure(spent.PREPARING, make_client)
        function = profile.measure(spent.FUNCTION, call.function)
        with (
            one_thread(),
            own_randomness(context, call, request.i),
            wrap_errors(call, f"client {request.i}"),
            torch.no_grad(),
        ):
            request = request._replace(own=self.place.send(request.find_own(context)))
            client = make(context, call, request, self.compiled, self.place, profile)
            received = self.place.send((*call.shared, *request.each))
            with self.place.activate():
                result = function(client, request.own, *received)
            result = self.place.fetch(result)
        if self.compiled is not None:
            self._report(self.compiled.notes)
        return result

    def answer(self, context: RunContext, call: Call, request: Request) -> Answer:
        """Run the function for one client in a worker; return notes and times too."""
        result = self.compute(context, call, request)
        notes, self.notes = self.notes, []
        return Answer(result, notes, self.profile.take())

    def describe(self, why: str = "") -> str:
        """Describe how many processes compute, and whether and why steps are compiled."""
        processes = "process" if self.workers == 1 else "processes"
        return f"loop in {self.workers} {processes}; {self.describe_steps(why)}"

    def describe_steps(self, why: str) -> str:
        """Describe whether steps are compiled, since when, and why."""
        compiled = "are not compiled" if self.compiled is None else "are compiled"
        if self.compiled is not None:
            unroll, since = self.compiled.unroll, self.compiled.since
            compiled += f", {unroll} at a time" if unroll > 1 else ""
            compiled += f" from round {since + 1} on" if since else ""
        reason = f", {why}" if why else ""
        return f"steps {compiled}{reason}"

    def watch(self) -> Callable[[], Mapping[str, float]]:
        """Measure where the time of clients goes, from the first call on."""
        self.profile = Profile(watching=True)
        return self.profile.own_seconds

    def close(self) -> None:
        """End the processes; the next call starts new ones."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _report(self, notes: list[str]) -> None:
        """Move notes to the engine's, each once: several workers may have the same."""
        new = [note for note in dict.fromkeys(notes) if note not in self._reported]
        self.notes += new
        self._reported.update(new)
        notes.clear()

    def _pool_knows(self, context: RunContext) -> bool:
        """Whether the workers, if there are any, were started with this context."""
        pool = self._pool
        return pool is None or all(
            getattr(pool.context, part) is getattr(context, part)
            for part in ("method", "task", "federation")
        )

    def delegates(self, requests: int) -> bool:
        """Whether other processes compute a call of so many clients; 2 stands for more."""
        return self.workers > 1 and requests > 1

    def get_pool(self, context: RunContext) -> Pool:
        """Return the workers, which are started if there are none."""
        if self._pool is None:
            self._pool = self.make_pool(context)
        return self._pool

    def make_pool(self, context: RunContext) -> Pool:
        """Start the processes that compute."""
        if self._start != "fork":
            try:
                messages.write((context.method, context.task), {}, None)
            except messages.CannotSend as error:
                self._workers, words = 1, "the method or model cannot be sent to others"
                self._report([f"one process computes, since {words}: {error}"])
                raise
        alone = Loop(compiled=self.compiled)
        alone.profile = Profile(self.profile.watching)
        return ProcessPool(context, self.workers, alone.answer, self._start, self.profile)


def make_client(
    context: RunContext,
    call: Call,
    request: Request,
    compiled: Compiled | None = None,
    place: Place = HERE,
    profile: Profile = UNWATCHED,
) -> Client:
    """Make the handle of one client, with nothing padded."""
    method, task, federation = context.method, place.move_task(context.task), context.federation
    if compiled is not None and call.t < compiled.since:
        compiled = None
    i, size, dtype = request.i, task.batch_size, task.w0.dtype
    n = federation.sizes(i)[0]
    per_pass = steps_per_pass(n, size)
    networks = (task.model, *task.others)
    channels_last = place.on_cpu and all(network.channels_last for network in networks)

    def part(name: str) -> Examples:
        x, y = federation.split(i, name)
        if channels_last and x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        importance = weigh_examples(context, i, y) if name == "train" else ()
        return place.send(Examples(x, y, importance=importance))

    def plan() -> Steps:
        drawn = draw(context, call, i, n)
        orders, u = place.send(
            (torch.as_tensor(drawn.orders), torch.as_tensor(drawn.u, dtype=dtype))
        )
        mixes = any(network.mixes_examples for network in networks)
        batches = [batch for order in orders for batch in split_order(order, size, mixes)]
        if compiled is None:
            return Steps(batches, u, per_pass)
        rows, weight = compiled.fill(batches, n, dtype)
        return Steps(rows, u, per_pass, weight)

    length, steps = place.send(
        (torch.tensor(n, dtype=dtype), torch.tensor(task.epochs * per_pass, dtype=dtype))
    )
    return Client(
        method,
        task,
        call.t,
        part=part,
        n=length,
        steps=steps,
        plan=plan,
        own=request.own,
        gradient=gradient if compiled is not None else profile.measure(spent.NETWORK, gradient),
        fold=choose_fold(compiled, n, profile),
        choice=call.choice,
        kind=context.kind(i),
    )


def choose_fold(
    compiled: Compiled | None, n: int, profile: Profile
) -> Callable[[StepFunction, Any, Iterator[Batch]], Any]:
    """Choose how one step after another is taken by a client of n examples."""
    run = fold if compiled is None else partial(compiled.fold, n=n)
    if not profile.watching:
        return run

    def measure_fold(step: StepFunction, carry: Any, batches: Iterator[Batch]) -> Any:
        batches = profile.measure_each(spent.GATHER, batches)
        if compiled is None:
            return run(profile.measure(spent.STEP, step), carry, batches)
        gathering, compiling = profile.seconds[spent.GATHER], compiled.seconds
        result = profile.measure(spent.COMPILED, run)(step, carry, batches)
        profile.seconds[spent.COMPILED] -= profile.seconds[spent.GATHER] - gathering
        profile.seconds[spent.COMPILING] += compiled.seconds - compiling
        return result

    return measure_fold


def gradient(objective: Callable[[Any], Tensor], w: Any) -> Any:
    """Differentiate by plain autograd, which is faster than torch.func for one client."""
    if torch.compiler.is_compiling():  # only torch.func can be compiled
        return grad(objective)(w)
    with torch.enable_grad():
        leaf = tree.map(lambda vector: vector.detach().requires_grad_(), w)
        leaves = list(tree.leaves(leaf))
        value = objective(leaf)
        # What the objective does not look at has gradient 0, as with torch.func.
        if not value.requires_grad:
            return tree.map(torch.zeros_like, w)
        parts = iter(torch.autograd.grad(value, leaves, materialize_grads=True))
    return tree.map(lambda _: next(parts), leaf)


def fold(step: StepFunction, carry: Any, batches: Iterator[Batch]) -> Any:
    """Take one step after another."""
    for batch in batches:
        carry = step(carry, batch)
    return carry
