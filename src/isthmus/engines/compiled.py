"""The step of a client's training as one compiled program.

A method's author writes a step in plain torch. Where it is taken many thousand times, it is worth
compiling: the network, its gradient, the chain rule through `at`, the gradient of the penalty,
weight decay, momentum and update become a few loops over memory, and no Python runs between them.

torch looks at the step when a client begins: whether a program for it exists, or one must be made.
That costs a third of a small step. So it is done for the first step only; for the rest, the very
same program is called with the tensors of the next batch in place of those of the first. A program
takes several steps where these are so short that calling it costs a good part of them. The first
call of a new program is checked against the plain steps, and one that does not agree is not used.
"""

import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import islice
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from isthmus import tree
from isthmus.client import Batch, StepFunction
from isthmus.engines import native
from isthmus.engines.base import Plan
from isthmus.models.flat import SHALLOW, Flat

# Steps, for each layer of the network, after which compiling has paid; a tenth of them where it
# pools convolutions, which native/pooling.py makes faster.
REPAYING_STEPS, POOLED_FACTOR = 10_000, 10
SHORT_ROUND_STEPS = 1_000  # of a round, for each layer, that take less than compiling does
TOLERANCE = 1e-4  # of the largest entry, by which a program's first step may differ,
POOLED_TOLERANCE = 1e-2  # and where pooling may choose the other of two that differ by rounding
MOST_FILLED_UP = 4  # how many times a client's examples may fit into a batch that is filled up
# Steps are short, and a program takes several, where a network without convolutions has at most
# this product of weights and examples, and the run this many times the steps that repay compiling.
UNROLL, LIGHT_PRODUCT, UNROLL_FACTOR = 4, 1 << 22, 4

Program = Callable[..., Any]
Make = Callable[[torch.fx.GraphModule, list[Tensor]], Program]


@dataclass(eq=False)
class Compiled:
    """Makes programs of steps, once for all clients of a run, and runs them."""

    batch_size: int
    layers: int
    since: int = 0  # the first round, from 0, whose steps are compiled
    fills: bool = False  # whether the network treats examples apart, so that some may not count
    random: bool = False  # whether steps draw numbers, so that two of them never agree
    unroll: int = 1  # steps of a program
    make_program: Make | None = None  # None: torch's compiler does
    programs: int = field(default=0, init=False)  # made so far
    seconds: float = field(default=0.0, init=False)  # spent on looking at steps and compiling them
    notes: list[str] = field(default_factory=list, init=False)
    _latest: tuple[Program, tuple[Any, ...]] | None = field(default=None, init=False)
    _tolerance: float = field(default=TOLERANCE, init=False)  # of the latest program
    # the code of steps that cannot be compiled
    _refused: set[tuple[Any, ...]] = field(default_factory=set, init=False)

    @classmethod
    def make(cls, plan: Plan) -> "Compiled":
        """Build the compiler of a run's steps.

        A first round that is short is done before its steps would have been compiled: it is not
        compiled, and shows soon that all is well.
        """
        layers = plan.networks[0].layers
        mixes_examples = plan.own or plan.mixes_examples  # an own network may do so unnoticed
        since = int(plan.steps_per_round <= SHORT_ROUND_STEPS * layers)
        unroll = max(1, plan.unroll) if native.load() else 1  # without them several gain nothing
        return cls(plan.batch_size, layers, since, not mixes_examples, plan.random, unroll)

    def __reduce__(self) -> Any:
        # Programs are every process's own.
        given = (self.batch_size, self.layers, self.since, self.fills, self.random, self.unroll)
        return Compiled, given

    @cached_property
    def _begin(self) -> Callable[[StepFunction, Any, tuple[Batch, ...]], None]:
        if not native.load():
            self.notes.append(
                f"torch {torch.__version__} compiles steps as it does by itself, which is slower; "
                f"what isthmus changes in programs is known to be right for {native.list_known()}"
            )
        return torch.compile(advance, backend=self._backend, fullgraph=True, dynamic=False)

    def fill(
        self, batches: list[Tensor], n: int, dtype: torch.dtype
    ) -> tuple[list[Tensor], list[Tensor] | None]:
        """Fill short batches of a client of n examples up with their first one, at weight 0.

        Return rows and weights. A client of very few examples is left as it is: nearly all of its
        batch would be filling.
        """
        if not self.fills:
            return batches, None
        full = torch.ones(self.batch_size, dtype=dtype)
        if MOST_FILLED_UP * n < self.batch_size:
            return batches, [full[: len(batch)] for batch in batches]
        rows, weights = [], []
        for batch in batches:
            missing = self.batch_size - len(batch)
            rows.append(torch.cat([batch, batch[:1].expand(missing)]) if missing else batch)
            weights.append(pad(full[: len(batch)], (0, missing)) if missing else full)
        return rows, weights

    def fold(self, step: StepFunction, carry: Any, batches: Iterator[Batch], n: int) -> Any:
        """Take one step after another; a batch that is not full is taken without the program."""
        carry = tree.map(torch.clone, carry)
        run: dict[int, Callable[[tuple[Batch, ...]], None]] = {}  # by how many steps it takes
        for some in self._group(batches):
            if some[0].y.size(0) < self.batch_size:
                advance(step, carry, some)
            elif len(some) in run:
                run[len(some)](some)
            else:
                run[len(some)] = self._take_first(step, carry, some, n)
        return carry

    def _group(self, batches: Iterator[Batch]) -> Iterator[tuple[Batch, ...]]:
        """Yield as many batches as a program takes, or single ones where they are not full."""
        while some := tuple(islice(batches, self.unroll)):
            full = len(some) == self.unroll
            if full and all(batch.y.size(0) == self.batch_size for batch in some):
                yield some
            else:
                yield from ((batch,) for batch in some)

    def _take_first(
        self, step: StepFunction, carry: Any, some: tuple[Batch, ...], n: int
    ) -> Callable[[tuple[Batch, ...]], None]:
        """Take the first steps, and return the function that takes the others."""
        some = tuple(part_tensors(batch) for batch in some)
        functions = list(find_functions(step))
        code = tuple(function.__code__ for function in functions)
        if code not in self._refused:
            for table in find_tensors(functions):
                if table.dim() and len(table) == n:  # each example's: as long as a client is large
                    torch._dynamo.maybe_mark_dynamic(table, 0)
            began, before, made = time.perf_counter(), tree.map(torch.clone, carry), self.programs
            drawn = torch.get_rng_state()
            try:
                self._capture(step, carry, some)
                if self.programs == made or self.random:
                    return self._reuse_program(some)
                after = torch.get_rng_state()
                torch.set_rng_state(drawn)  # plain steps draw what is drawn without a program
                if self._agrees(step, before, some, carry):
                    torch.set_rng_state(after)
                    return self._reuse_program(some)
                self._refused.add(code)
                self.notes.append("a compiled step does not agree with the plain one, which runs")
                for old, plain in zip(tree.leaves(carry), tree.leaves(before), strict=True):
                    old.copy_(plain)
                return partial(advance, step, carry)
            except torch._dynamo.exc.TorchDynamoException as error:
                self._refused.add(code)
                reason = str(error).splitlines()[0]
                self.notes.append(f"a step cannot be compiled and runs as it is: {reason}")
            finally:
                self.seconds += time.perf_counter() - began
        advance(step, carry, some)
        return partial(advance, step, carry)

    def _capture(self, step: StepFunction, carry: Any, some: tuple[Batch, ...]) -> None:
        # torch 2.6 knows these by no other names, and later ones by these too
        limits = {"cache_size_limit": 1000, "accumulated_cache_size_limit": 10_000}
        with warnings.catch_warnings(), torch._dynamo.config.patch(limits):
            warnings.simplefilter("ignore")  # torch warns of what it does itself
            self._begin(step, carry, some)

    def _agrees(self, step: StepFunction, before: Any, some: tuple[Batch, ...], after: Any) -> bool:
        """Whether a program took its first steps as plain ones do, from `before` on."""
        advance(step, before, some)
        pairs = zip(tree.leaves(after), tree.leaves(before), strict=True)
        return all(
            _is_close(ours.double(), plain.double(), self._tolerance) for ours, plain in pairs
        )

    def _reuse_program(self, some: tuple[Batch, ...]) -> Callable[[tuple[Batch, ...]], None]:
        """Return what runs the latest program on other batches in place of these."""
        assert self._latest is not None
        (program, inputs), self._latest = self._latest, None
        places = [
            (place, number, name)
            for place, value in enumerate(inputs)
            for number, batch in enumerate(some)
            for name in ("x", "y", "u", "rows", "importance", "weight")
            if value is getattr(batch, name)
        ]
        given = list(inputs)

        def run(some: tuple[Batch, ...]) -> None:
            for place, number, name in places:
                given[place] = getattr(some[number], name)
            program(*given)

        return run

    def compile(self, graph: torch.fx.GraphModule, examples: list[Tensor]) -> Program:
        """Compile a program as steps are compiled."""
        from torch._inductor.compile_fx import compile_fx

        options = {
            "cpp_wrapper": True,
            "cpp.threads": 1,
            "compile_threads": 1,
            "layout_optimization": self.layers <= SHALLOW,
            **native.find_options(),
        }
        program: Any = compile_fx(graph, examples, config_patches=options)
        return program  # type: ignore[no-any-return]

    def _backend(self, graph: torch.fx.GraphModule, examples: list[Tensor]) -> Program:
        self.programs += 1
        self._tolerance = POOLED_TOLERANCE if native.fuse(graph) else TOLERANCE
        program = (self.make_program or self.compile)(graph, examples)

        def run(*inputs: Any) -> Any:
            self._latest = program, inputs
            return program(*inputs)

        return run


def advance(step: StepFunction, carry: Any, batches: Sequence[Batch]) -> None:
    """Take one step after another, and overwrite the carry with the result of each."""
    before = list(tree.leaves(carry))
    now = carry
    for left, batch in zip(reversed(range(len(batches))), batches, strict=True):
        after = [
            new.clone() if any(new is old for old in before) else new
            for new in tree.leaves(step(now, batch))
        ]
        if left and torch.compiler.is_compiling():  # a program is told where steps' results go,
            placed = iter(torch.ops.isthmus.place(after, before))
            now = tree.map(lambda _, placed=placed: next(placed), carry)
        else:  # and sees by itself that what it is given is overwritten in the end
            for old, new in zip(before, after, strict=True):
                old.copy_(new)


def part_tensors(batch: Batch) -> Batch:
    """Make a batch's tensors its own: what two batches share would be one input of a program."""
    parts: Any = (part.view_as(part) if isinstance(part, Tensor) else part for part in batch)
    return Batch(*parts)


def _is_close(ours: Tensor, plain: Tensor, tolerance: float) -> bool:
    """Whether tensors differ by little; NaN agrees with anything."""
    if not ours.numel():
        return True
    apart = (ours - plain).abs().nan_to_num().max()
    return bool(apart <= tolerance * (1e-3 + plain.abs().nan_to_num().max()))


def find_functions(function: Any) -> Iterator[FunctionType]:
    """Yield a function, and those in its closure."""
    function = getattr(function, "__func__", function)
    if isinstance(function, FunctionType):
        yield function
        for cell in function.__closure__ or ():
            yield from find_functions(cell.cell_contents)


def find_tensors(functions: Iterable[FunctionType]) -> Iterator[Tensor]:
    """Yield the tensors in the closures of functions."""
    for function in functions:
        for cell in function.__closure__ or ():
            if isinstance(cell.cell_contents, Tensor):
                yield cell.cell_contents


@cache
def has_compiler() -> bool:
    """Whether there is a C++ compiler."""
    return any(shutil.which(name) for name in ("g++", "clang++", "cl"))


def repays(network: Flat, steps: float) -> bool:
    """Whether a run of so many steps is worth compiling the step of this network."""
    if network.recurrent or network.random:  # no program of random steps can be held against them
        return False
    enough = (
        REPAYING_STEPS // POOLED_FACTOR if network.pools and native.is_known() else REPAYING_STEPS
    )
    return has_compiler() and steps >= enough * network.layers


def repays_several(plan: Plan) -> bool:
    """Whether a run is worth programs of several steps.

    Such programs take longer to make, and save the calling of others, which only short steps show.
    """
    network, steps = plan.networks[0], plan.rounds * plan.steps_per_round
    light = not network.convolutional and network.size * plan.batch_size <= LIGHT_PRODUCT
    lasting = steps >= UNROLL_FACTOR * REPAYING_STEPS * network.layers
    return light and lasting and native.load()
