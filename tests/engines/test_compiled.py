"""Compiled steps: every method's can be captured whole, and gives what the plain loop gives."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from golden import check, raises
from isthmus import Experiment, IsthmusError, tree
from isthmus.client import Batch
from isthmus.engines import ENGINES, native
from isthmus.engines.base import Plan
from isthmus.engines.compiled import (
    Compiled,
    find_functions,
    find_tensors,
    has_compiler,
)
from isthmus.engines.compiled import advance as advance_in_place
from isthmus.engines.loop import Loop, fold
from isthmus.methods import METHODS
from isthmus.models.flat import Flat
from isthmus.run.build import build
from small import FEATURES, advance, begin, network, setting

STEPS = 1 if not native.load() else 2  # of a program; several where the compiler is known


def close(ours: object, theirs: object) -> bool:
    """Compares states: a program adds in another order, which float32 shows in the last digits."""
    pairs = zip(tree.leaves(ours), tree.leaves(theirs), strict=True)
    return all(torch.allclose(a.double(), b.double(), atol=1e-5) for a, b in pairs)


def as_it_is(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Callable[..., Any]:
    """Runs a graph without compiling it, which would take seconds."""
    return graph.forward


@pytest.mark.parametrize("method", METHODS)
def test_every_method_s_step_is_captured_once_for_all_clients_and_rounds(method: str) -> None:
    """Once for two steps at a time, and once for the one that may be left."""
    compiled = Compiled(batch_size=8, layers=2, fills=True, unroll=STEPS, make_program=as_it_is)
    ours, theirs = setting(method, Loop()), setting(method, Loop(compiled=compiled))
    one, other = begin(ours), begin(theirs)
    made = []
    for _ in range(4):
        one, _ = advance(ours, one, evaluate=False)
        other, _ = advance(theirs, other, evaluate=False)
        made.append(compiled.programs)
    assert close(one.server, other.server)
    assert all(close(one.own[i], other.own[i]) for i in one.own)
    assert 0 < made[-1] == made[-2]


@pytest.mark.skipif(not has_compiler(), reason="there is no C++ compiler")
@pytest.mark.parametrize(("method", "unroll"), [("superfed-lm", STEPS), ("fedsimsup", 1)])
def test_a_compiled_step_gives_what_the_plain_loop_gives(method: str, unroll: int) -> None:
    """Of the two methods, one mixes by layer and the other looks up a table of its examples."""
    compiled = Compiled(batch_size=8, layers=2, fills=True, unroll=unroll)
    changes = {"name": method, "start": 0.0} if method == "superfed-lm" else method
    ours, theirs = setting(changes), setting(changes, Loop(compiled=compiled))
    one, _ = advance(ours, begin(ours), evaluate=False)
    other, _ = advance(theirs, begin(theirs), evaluate=False)
    assert compiled.programs == (1 if method == "superfed-lm" else 2)
    assert close(one.server, other.server)
    assert all(close(one.own[i], other.own[i]) for i in one.own)


def test_a_batch_is_filled_up_with_examples_that_count_nothing() -> None:
    """But not for a client whose examples would fill less than a quarter of it."""
    compiled = Compiled(batch_size=4, layers=1, fills=True)
    filled: Any = compiled.fill([torch.arange(4), torch.tensor([7])], 5, torch.float64)
    rows, weights = ([each.tolist() for each in part] for part in filled)
    assert rows == [[0, 1, 2, 3], [7, 7, 7, 7]]
    assert weights == [[1, 1, 1, 1], [1, 0, 0, 0]]
    left: Any = Compiled(batch_size=5, layers=1, fills=True).fill(
        [torch.tensor([7])], 1, torch.float64
    )
    assert [each.tolist() for part in left for each in part] == [[7], [1]]


def test_a_filled_batch_gives_what_the_short_one_gives() -> None:
    """And the program takes all steps, not only those of full batches."""
    took: list[int] = []

    def make(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Any:
        return lambda *inputs: (took.append(1), graph(*inputs))[1]

    ends = []
    for fills in (False, True):
        took.clear()
        made = setting("superfed-mm", Loop(compiled=Compiled(8, 2, fills=fills, make_program=make)))
        end, _ = advance(made, begin(made), evaluate=False)
        ends.append((end.server, len(took)))
    (one, short), (other, all_of_them) = ends
    assert close(one, other)
    assert short < all_of_them


def normalised() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(FEATURES, track_running_stats=False), network())


@pytest.mark.parametrize(
    ("make", "own", "fills"),
    [(network, False, True), (normalised, False, False), (network, True, False)],
)
def test_a_network_that_may_mix_examples_is_shown_none_that_do_not_count(
    make: Callable[[], nn.Module], own: bool, fills: bool
) -> None:
    """Batch normalisation is known to do so, and what somebody's own network does is not."""
    plan = Plan(
        engine="loop",
        step="compiled",
        block=1,
        device="cpu",
        rounds=4,
        clients_per_round=4,
        epochs=2,
        batch_size=8,
        sizes=[20, 30],
        networks=(Flat(make),),
        own=own,
    )
    made = ENGINES[plan.engine].make(plan)
    assert isinstance(made, Loop)
    assert made.compiled is not None
    assert made.compiled.fills is fills


def batches(count: int) -> list[Batch]:
    """Full batches of eight examples."""
    x = torch.linspace(-1, 1, count * 8 * 6).view(count, 8, 6).sin()
    y, nothing = torch.zeros(8, dtype=torch.int64), torch.zeros(0)
    return [Batch(rows, y, nothing, y) for rows in x]


def added(carry: tuple[torch.Tensor], batch: Batch) -> tuple[torch.Tensor]:
    return ((batch.x.T @ batch.x).add(carry[0], alpha=0.1),)


@pytest.mark.skipif(not has_compiler(), reason="there is no C++ compiler")
def test_a_compiler_s_mistake_is_noticed() -> None:
    """torch 2.13 forgets the factor beside a product: 0.9 of the carry too much in every step."""
    start = (torch.ones(6, 6),)
    expected, *_ = fold(added, start, iter(batches(3)))
    found, *_ = Compiled(batch_size=8, layers=1).fold(added, start, iter(batches(3)), n=-1)
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_program_that_does_not_agree_with_the_plain_step_is_not_used() -> None:
    start = (torch.ones(6, 6),)
    expected, *_ = fold(added, start, iter(batches(3)))
    compiled = Compiled(batch_size=8, layers=1, make_program=lambda *_: lambda *inputs: None)
    for _ in range(2):
        found, *_ = compiled.fold(added, start, iter(batches(3)), n=-1)
        assert torch.equal(found, expected)
    check(compiled.notes[-1])
    assert len(compiled.notes) == (2 if not native.load() else 1)


def test_a_step_may_exchange_what_it_carries() -> None:
    """The new values are all taken before the first of the old ones is overwritten."""
    a, b = torch.zeros(2), torch.ones(2)
    advance_in_place(lambda carry, _: (carry[1], carry[0]), (a, b), [None])  # type: ignore[list-item]
    assert (a.tolist(), b.tolist()) == ([1, 1], [0, 0])


def turned(carry: tuple[torch.Tensor, torch.Tensor], batch: Batch) -> Any:
    """A step each of whose results needs both of what it starts from."""
    a, b = carry
    return a + 0.1 * b + batch.x.sum(), b - 0.1 * a


@pytest.mark.skipif(not has_compiler(), reason="there is no C++ compiler")
@pytest.mark.skipif(not native.load(), reason=f"made for the compiler of {native.list_known()}")
def test_a_step_s_results_are_written_when_nothing_needs_what_they_are_written_over() -> None:
    """Seven steps, three at a time: two programs of three, and one that is left."""
    start = (torch.linspace(0, 1, 9000), torch.linspace(1, 2, 9000))
    compiled = Compiled(batch_size=8, layers=1, unroll=3)
    found = compiled.fold(turned, start, iter(batches(7)), n=-1)
    assert close(found, fold(turned, start, iter(batches(7))))
    assert (compiled.programs, compiled.notes) == (2, [])


def test_a_compiler_that_is_not_known_is_left_alone_and_a_note_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its programs take one step, and graph_passes.py, which may not even load, is not asked."""
    monkeypatch.setattr(torch, "__version__", "3.0.1")
    monkeypatch.setitem(sys.modules, "isthmus.engines.native.graph_passes", None)
    native.load.cache_clear()
    try:
        changes = {"clients": 20, "rounds": 100_000, "step": "compiled"}
        _, made = build(Experiment(method="fedavg", data="digits", **changes))
        assert isinstance(made.engine, Loop)
        assert made.engine.compiled is not None
        assert made.engine.compiled.unroll == 1
        compiled = Compiled(batch_size=8, layers=1, make_program=as_it_is)
        start = (torch.ones(6, 6),)
        found = compiled.fold(added, start, iter(batches(3)), n=-1)
        assert close(found, fold(added, start, iter(batches(3))))
        (note,) = compiled.notes
        check(note)
    finally:
        native.load.cache_clear()


@pytest.mark.skipif(not native.load(), reason=f"made for the compiler of {native.list_known()}")
@pytest.mark.parametrize(
    ("model", "rounds", "unroll"),
    [("twonn", 700, 4), ("twonn", 300, 1), ("twocnn", 70_000, 1)],
)
def test_programs_take_several_steps_where_these_are_short_and_many(
    model: str, rounds: int, unroll: int
) -> None:
    """TwoNN has 3 layers; the digits take 300 steps a round, so 120,000 in 400 rounds.

    The record says how many, and a run that is prolonged keeps to it.
    """
    several = {"model": model, "rounds": rounds, "step": "compiled"}
    experiment, made = build(Experiment(method="fedavg", data="digits", **several))
    assert experiment.unroll == unroll
    assert build(experiment.model_copy(update={"rounds": 10_000})).experiment.unroll == unroll
    assert isinstance(made.engine, Loop)
    assert made.engine.compiled is not None
    assert made.engine.compiled.unroll == unroll
    assert ("4 at a time" in made.engine.describe()) is (unroll == 4)


def test_tensors_are_found_in_functions_within_functions() -> None:
    table, scalar = torch.zeros(3), torch.tensor(1.0)

    def inner() -> Any:
        return table, scalar

    found = list(find_tensors(find_functions(lambda: inner())))
    assert {id(tensor) for tensor in found} == {id(table), id(scalar)}


def test_long_runs_are_compiled_and_short_ones_are_not() -> None:
    """10,000 steps for each of two layers; the digits' 20 clients have 54 examples to train on,
    so 5 clients x 10 epochs x 6 batches are 300 steps a round, and 67 rounds repay it."""
    for rounds, step in ((60, "eager"), (70, "compiled" if has_compiler() else "eager")):
        experiment = Experiment(method="fedavg", data="digits", rounds=rounds)
        assert build(experiment)[0].step == step


def test_compiling_what_cannot_be_is_one_line() -> None:
    experiment = Experiment(method="fedavg", data="digits", step="compiled", engine="stacked")
    with raises(IsthmusError):
        build(experiment)


class Peculiar(nn.Module):
    """A network that asks for the value of a tensor, which no program can know."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.layer = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z: torch.Tensor = self.layer(x)
        return z if x.detach().sum().item() > -1e9 else -z


@pytest.mark.skipif(not has_compiler(), reason="there is no C++ compiler")
@pytest.mark.parametrize(("epochs", "since"), [(66, 1), (67, 0)])
def test_a_short_first_round_is_over_before_anything_is_compiled(epochs: int, since: int) -> None:
    """1,000 steps for each of two layers; 5 clients of 6 batches take 30 an epoch."""
    experiment = Experiment(method="fedavg", data="digits", epochs=epochs, step="compiled")
    _, made = build(experiment)
    assert isinstance(made.engine, Loop)
    assert made.engine.compiled is not None
    assert made.engine.compiled.since == since


def test_programs_are_made_from_their_first_round_on() -> None:
    compiled = Compiled(batch_size=8, layers=2, since=1, make_program=as_it_is)
    made = setting("fedavg", Loop(compiled=compiled))
    progress, _ = advance(made, begin(made), evaluate=False)
    assert compiled.programs == 0
    advance(made, progress, evaluate=False)
    assert compiled.programs == 1


def test_a_step_that_cannot_be_compiled_runs_as_it_is_and_says_so() -> None:
    compiled = Compiled(batch_size=8, layers=1)
    ours = setting("fedavg", build=Peculiar)
    theirs = setting("fedavg", Loop(compiled=compiled), build=Peculiar)
    one, _ = advance(ours, begin(ours), evaluate=False)
    other, step = advance(theirs, begin(theirs), evaluate=False)
    assert close(one.server, other.server)
    *of_the_compiler, note = step.notes
    check(note)
    assert bool(of_the_compiler) is (not native.load())
