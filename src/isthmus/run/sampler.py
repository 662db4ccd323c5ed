"""What the steps of a client take, from a few of them: the others are counted and not taken.

The time of a step has a part that grows with its batch and one that does not: reading and writing
vectors of all parameters, and calling operations. The second is what compiling saves, and of the
first what isthmus.engines.native.pooling does.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from isthmus import tree
from isthmus.client import Batch, StepFunction
from isthmus.context import RunContext
from isthmus.engines.base import steps_per_pass
from isthmus.engines.compiled import Compiled, find_functions, load_passes
from isthmus.engines.loop import Loop
from isthmus.experiment.settings import Experiment
from isthmus.models import layout
from isthmus.models.flat import Flat

LEAST, MOST = 6, 30  # steps that are taken of each scan
ENOUGH = 0.05  # seconds, after which no more are
SHORT = 0.01  # seconds of a step that is tried with more examples, not with fewer
TIMES = 4  # as many of them, or as few
KEPT = 0.14  # of the time that does not grow with the batch, in a compiled step,
KEPT_UNROLLED = 0.11  # and in one of several that are a program

Clock = Callable[[], float]


class StepSampler(Compiled):
    """Stands where steps are compiled: takes a few, and counts the seconds of the others."""

    clock: Clock = time.process_time
    ahead = 0.0  # seconds that all steps so far would have taken, less those that were spent

    def __init__(
        self,
        batch_size: int,
        compiler: Compiled | None = None,
        alike: bool = True,
        network: Flat | None = None,
    ):
        fills = compiler is not None and compiler.fills
        Compiled.__init__(self, batch_size, layers=1, fills=fills)
        self.compiler = compiler  # what compiles the steps of the run
        self.alike = alike  # whether all clients take as many steps
        self.compiles = compiler is not None
        self.network = network
        self.kept: float | None = None  # of the time that grows with the batch; not yet measured
        self.kinds: set[Any] = set()  # of steps, each of which becomes a program

    @classmethod
    def of_run(cls, experiment: Experiment, setting: RunContext) -> "StepSampler":
        """Makes the sampler of a run's steps."""
        engine, size = setting.engine, experiment.batch_size
        sizes = (setting.federation.sizes(i)[0] for i in range(len(setting.federation)))
        alike = len({steps_per_pass(n, size) for n in sizes}) == 1
        compiler = engine.compiled if isinstance(engine, Loop) else None
        return cls(size, compiler, alike, setting.task.model)

    def begin(self, t: int) -> None:
        """Begins a round, from 0: whether its steps are compiled."""
        self.compiles = self.compiler is not None and t >= self.compiler.since

    def fold(self, step: StepFunction, carry: Any, batches: Iterator[Batch], n: int) -> Any:
        """Takes the first steps one after another."""
        return self.sample(step, carry, batches)

    def sample(self, step: StepFunction, carry: Any, batches: Iterator[Batch]) -> Any:
        """Takes the first steps one after another."""
        taken: list[float] = []
        spent, count = 0.0, 0
        for batch in batches:
            count += 1
            if len(taken) < LEAST or (len(taken) < MOST and spent < ENOUGH):
                seconds, carry = self._time(step, carry, batch)
                taken.append(seconds)
                spent += seconds
                usual = batch
        if count:
            each = _average(taken)
            if self.compiles:
                self.kinds.update(self._find_kinds(step, carry, count))
                size = len(usual.y)
                # Of short steps, the times of a smaller batch differ by less than they vary.
                many = size * TIMES if each < SHORT or size < TIMES else size // TIMES
                # In turns, and the shortest of each: what disturbs one would pass for its size.
                sizes = (usual, resize(usual, many)) * LEAST
                again = [self._time(step, carry, batch)[0] for batch in sizes]
                spent += sum(again)
                kept = KEPT if self.compiler is None or self.compiler.unroll == 1 else KEPT_UNROLLED
                if self.kept is None:
                    began = self.clock()
                    self.kept = 1.0 if self.network is None else pool_time(self.network, usual.x)
                    spent += self.clock() - began
                times = (size, min(again[::2]), many, min(again[1::2]))
                each = compile_time(*times, kept, self.kept)
            self.ahead += count * each - spent
        return carry

    def _find_kinds(self, step: StepFunction, carry: Any, count: int) -> Iterator[Any]:
        """Yields what tells the programs apart that so many steps like this one become."""
        assert self.compiler is not None
        unroll = self.compiler.unroll
        code = tuple(function.__code__ for function in find_functions(step))
        shapes = tuple(leaf.shape for leaf in tree.leaves(carry))
        if count >= unroll:
            yield code, shapes, unroll
        if unroll > 1 and (count % unroll or not self.alike or not self.fills):
            yield code, shapes, 1

    def _time(self, step: StepFunction, carry: Any, batch: Batch) -> tuple[float, Any]:
        began = self.clock()
        carry = step(carry, batch)
        return self.clock() - began, carry


def compile_time(
    size: int,
    seconds: float,
    other: int,
    seconds_of_other: float,
    kept: float = KEPT,
    kept_of_growing: float = 1.0,
) -> float:
    """Gives about what a compiled step takes, from what plain ones of two sizes do.

    >>> round(compile_time(10, 2.0, 80, 9.0), 2)  # 0.1 for an example, 1 whatever the batch
    1.14
    >>> round(compile_time(10, 2.0, 80, 9.0, kept_of_growing=0.5), 2)
    0.64
    """
    growing = min(max((seconds_of_other - seconds) / (other - size) * size, 0.0), seconds)
    return kept_of_growing * growing + kept * (seconds - growing)


def pool_time(network: Flat, x: Tensor) -> float:
    """Gives the share of a network's time on some images that is left where pooling is fused."""
    if not network.pools or load_passes() is None:
        return 1.0
    from isthmus.engines.native.pooling import load_kernels, pool_apart, pool_images

    if load_kernels() is None:
        return 1.0
    module, met = network.load(network.fresh(0)), dict[nn.Module, Tensor]()
    pooled = list(layout.find_pooled(module))

    def remember(layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        met[layer] = given[0]

    for each in pooled:
        each.layer.register_forward_pre_hook(remember)
    with torch.enable_grad():
        whole = _time_gradient(lambda: module(x), list(module.parameters()))
        saved = 0.0
        for layer, slope in pooled:
            weight, bias = layer.weight, layer.bias
            assert bias is not None
            padding = int(layer.padding[0])
            images = met[layer].detach().requires_grad_(met[layer].requires_grad)
            wanted = [weight, bias, images] if images.requires_grad else [weight, bias]
            numbers = (images, weight, bias, padding, slope)
            saved += _time_gradient(partial(pool_apart, *numbers), wanted)
            saved -= _time_gradient(partial(pool_images, *numbers), wanted)
    return min(max(1 - saved / whole, 0.1), 1.0)


def _time_gradient(run: Callable[[], Tensor], inputs: list[Tensor]) -> float:
    """Gives the shortest of some times that a forward and a backward pass took."""
    inputs, taken = [each for each in inputs if each.requires_grad], []
    for _ in range(LEAST):
        began = time.process_time()
        torch.autograd.grad(run().sum(), inputs, allow_unused=True)
        taken.append(time.process_time() - began)
    return min(taken)


def resize(batch: Batch, size: int) -> Batch:
    """Gives the first examples of a batch, or has each of them again until there are so many."""
    some = torch.arange(size) % len(batch.y)
    importance = () if isinstance(batch.importance, tuple) else batch.importance[some]
    weight = None if batch.weight is None else batch.weight[some]
    return Batch(batch.x[some], batch.y[some], batch.u, batch.rows[some], importance, weight)


def _average(seconds: list[float]) -> float:
    """Takes the median of all but the first, in which torch prepares itself."""
    return median(seconds[1:] or seconds)
