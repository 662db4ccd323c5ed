"""What every method promises, checked for every method: see design rules in CONTRIBUTING.md."""

import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from isthmus import Experiment, tree
from isthmus.cohort import Clients, Round
from isthmus.context import Call, Request, RunContext
from isthmus.engines.stacked import Stacked
from isthmus.method import Method
from isthmus.methods import METHODS
from isthmus.run.newcomers import join
from isthmus.run.open import deploy
from isthmus.run.store import Progress, RoundUpdate, digest_of
from isthmus.shelf import Shelf
from isthmus.shelf import after as following_shelf
from odd_engines import Flaky, Wire, through_bytes
from small import CLASSES, SIZES, advance, begin, federation, played, setting
from table import ROWS, Row


def deployed(made: RunContext, end: Progress, i: int) -> torch.Tensor:
    """What client i would deploy."""
    clients = Clients([i], Round(made, end.t - 1, end.own, shelf=Shelf(end.shelf)))
    (found,) = clients.visit(deploy, made.method.deliver(end.server, clients))
    return found[i].w


class Played(NamedTuple):
    """Four rounds of one client after another, which the tests of a method share."""

    setting: RunContext
    states: list[Progress]  # before the first round, and after each
    steps: list[RoundUpdate]  # of which the last two were evaluated


@cache
def shared(name: str) -> Played:
    """Plays them once: that no round writes to what it is given has a test of its own."""
    (row,) = [row for row in ROWS if row.name == name]
    made = setting(row.method)
    states, steps = [begin(made)], []
    for t in range(4):
        state, step = advance(made, states[-1], evaluate=t > 1)
        states.append(state)
        steps.append(step)
    return Played(made, states, steps)


every_method = pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])


def same(first: Any, second: Any) -> bool:
    return tree.pack(first) == tree.pack(second)


def distance(first: Any, second: Any) -> float:
    pairs = zip(tree.leaves(first), tree.leaves(second), strict=True)
    gaps = [(a.double() - b.double()).abs().nan_to_num(0).max() for a, b in pairs if a.numel()]
    return float(max(gaps, default=0.0))


def after(made: RunContext, middle: Progress, ids: list[int]) -> Progress:
    """Plays the third round with these clients, whoever would have been drawn."""
    round = Round(made, middle.t, middle.own, shelf=Shelf(middle.shelf))
    server = made.method.round(middle.server, Clients(ids, round))
    shelf = following_shelf(middle.shelf, round.shelf.changed)
    return Progress(3, server, {**middle.own, **round.changed}, shelf)


def test_every_method_has_a_row() -> None:
    assert [row.name for row in ROWS] == list(METHODS)


@every_method
def test_defaults_are_the_papers(row: Row) -> None:
    experiment = Experiment(method=row.name)
    assert {key: experiment.method[key] for key in row.defaults} == row.defaults


@every_method
def test_wire_equals_loop_to_the_bit(row: Row) -> None:
    made, states, steps = shared(row.name)
    wire = made._replace(engine=Wire())
    end = played(wire, 3)
    assert digest_of(end) == digest_of(states[3])
    _, step = advance(wire, end, evaluate=True)
    assert repr(step.evaluation) == repr(steps[3].evaluation)


@every_method
def test_stacked_agrees_with_loop(row: Row) -> None:
    """Over one round float32 sums in another order differ by 1e-7 a step; 1e-5 leaves room.

    Blocks of three mix clients of 5 to 27 training examples: with batches of eight, one to four
    steps a pass, the last of them short.
    """
    made, states, steps = shared(row.name)
    stacked = made._replace(engine=Stacked(block=3))
    middle = states[2]  # in phase II where there is one
    ends = [(states[3], steps[2]), advance(stacked, middle, evaluate=True)]
    assert distance(ends[0][0].server, ends[1][0].server) < 1e-5
    assert ends[0][0].own.keys() == ends[1][0].own.keys()
    assert sorted(ends[0][0].shelf) == sorted(ends[1][0].shelf)
    for name, tensor in ends[0][0].shelf.items():
        assert distance(tensor, ends[1][0].shelf[name]) < 1e-5
    for i, own in ends[0][0].own.items():
        assert distance(own, ends[1][0].own[i]) < 1e-5
    for one, other in zip(ends[0][1].evaluation.scores, ends[1][1].evaluation.scores, strict=True):
        assert one.figures.loss == pytest.approx(other.figures.loss, abs=1e-4)
        assert (one.figures.n == other.figures.n).all()


@every_method
def test_padding_changes_nothing(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies in padded places, here the number 7, must not reach any result."""
    made, (_, _, middle, *_), _ = shared(row.name)
    made = made._replace(engine=Stacked(block=6))
    zeros = advance(made, middle, evaluate=True)
    import isthmus.engines.stacked as engine

    def sevens(rows: list[torch.Tensor], batch_first: bool) -> torch.Tensor:
        filler = 7
        if rows[0].dtype == torch.int64:  # labels must be classes
            filler = CLASSES - 1
        elif rows[0].dim() == 1:  # weights say what is padded
            filler = 0
        return pad_sequence(rows, batch_first, filler)

    monkeypatch.setattr(engine, "pad_sequence", sevens)
    filled = advance(made, middle, evaluate=True)
    assert digest_of(zeros[0]) == digest_of(filled[0])
    assert repr(zeros[1].evaluation) == repr(filled[1].evaluation)


@every_method
def test_the_order_of_clients_changes_nothing(row: Row) -> None:
    made, (_, _, middle, *_), _ = shared(row.name)
    ends = [after(made, middle, ids) for ids in ([0, 2, 3, 5], [5, 3, 0, 2])]
    assert digest_of(ends[0]) == digest_of(ends[1])


@every_method
@pytest.mark.parametrize("engine", [None, Stacked(block=4)], ids=["loop", "stacked"])
def test_the_same_seed_gives_the_same_bits_on_any_number_of_threads(row: Row, engine: Any) -> None:
    before = torch.get_num_threads()
    usual = shared(row.name).states[3] if engine is None else played(setting(row.method, engine), 3)
    try:
        torch.set_num_threads(1 if before > 1 else 2)
        made = setting(row.method, engine)
        first = played(made, 1)
        assert digest_of(played(made, 2, first)) == digest_of(usual)
    finally:
        torch.set_num_threads(before)
    other = played(setting(row.method, engine, seed=4), 1)
    assert digest_of(first) != digest_of(other)


@every_method
def test_resumed_equals_uninterrupted(row: Row) -> None:
    """Between two rounds, server, shelf and own states as bytes are all the rest depends on."""
    _, (progress, *_, end), _ = shared(row.name)
    for _ in range(4):
        progress = played(setting(row.method), 1, progress)  # a new process would build it anew
        own = {i: through_bytes(state) for i, state in progress.own.items()}
        shelf = {name: through_bytes(tensor) for name, tensor in progress.shelf.items()}
        progress = Progress(progress.t, through_bytes(progress.server), own, shelf)
    assert digest_of(progress) == digest_of(end)


@every_method
def test_inputs_are_not_written_to(row: Row) -> None:
    made, (_, _, middle, *_), _ = shared(row.name)
    before = digest_of(middle)
    advance(made, middle, evaluate=True)
    assert digest_of(middle) == before


@every_method
def test_a_round_uses_the_replies_that_came(row: Row) -> None:
    """A cohort of which some answers are lost equals the cohort of those that answered."""
    made, (_, _, middle, *_), _ = shared(row.name)

    def losing(ids: list[int], lost: set[int]) -> Progress:
        return after(made._replace(engine=Flaky(lambda t, i: i in lost)), middle, ids)

    if row.name == "local":  # trains all clients, whoever was sampled
        some, all_of_them = losing([0], {1, 4}), losing([0], set())
        for i in range(len(SIZES)):
            expected = middle if i in (1, 4) else all_of_them
            assert same(some.own[i], expected.own[i])
            assert some.server.training[i] == expected.server.training[i]
        assert not same(middle.own[1], all_of_them.own[1])  # it would have trained
    elif not made.method.about().federated:  # nobody is asked; data are all in one place
        assert digest_of(losing([0, 1, 2, 4], {1, 4})) == digest_of(losing([0, 1, 2, 4], set()))
    else:
        assert digest_of(losing([0, 1, 2, 4], {1, 4})) == digest_of(losing([0, 2], set()))


@every_method
def test_if_nobody_answers_nothing_changes(row: Row) -> None:
    made, (_, _, middle, *_), _ = shared(row.name)
    silent = made._replace(engine=Flaky(lambda t, i: True))
    end, done = advance(silent, middle, evaluate=False)
    assert done.cost.answered == 0
    assert end.t == 3
    assert same(end.server, middle.server)
    assert digest_of(end._replace(t=2)) == digest_of(middle)


@every_method
def test_what_one_client_owns_never_reaches_another(row: Row) -> None:
    """Client 2's own state is replaced and its reply lost: all else is the same to the bit."""
    made, (_, _, middle, *_), _ = shared(row.name)
    made = made._replace(engine=Flaky(lambda t, i: i == 2))
    others = {i: own for i, own in middle.own.items() if i != 2}
    strange = tree.map(lambda leaf: torch.ones_like(leaf), made.method.own(made.task, 2))
    ends = []
    for own in (others, {**others, 2: strange}):
        end = after(made, middle._replace(own=own), [0, 1, 2, 3])
        assert (2 in end.own) == (2 in own)
        if 2 in own:
            assert same(end.own[2], own[2])
        ends.append(end._replace(own={i: state for i, state in end.own.items() if i != 2}))
    assert digest_of(ends[0]) == digest_of(ends[1])


@every_method
def test_the_limiting_case_is_the_simpler_method(row: Row) -> None:
    """The shared model, or with one client what it would deploy, is the same to the last bit."""
    if row.limit is None or row.simpler is None:
        file = inspect.getfile(type(METHODS[row.name])).rpartition("/")[2]
        text = Path(__file__).parents[1].joinpath("methods", f"test_{file}").read_text()
        assert "def test_the_limiting_case" in text
        return
    data = federation(sizes=(40,)) if row.limit.get("clients_per_round") == 1 else None

    def model(settings: dict[str, Any]) -> torch.Tensor:
        made = setting(settings.pop("method"), data=data, **settings)
        end = played(made, made.task.rounds)
        shared = made.method.common(end.server)
        if data is None and shared is not None:
            return shared
        if f"uploads/{end.t - 1}" in end.shelf:  # what the last participants sent
            return end.shelf[f"uploads/{end.t - 1}"].flatten()
        return deployed(made, end, 0)

    first, second = model(dict(row.limit)), model(dict(row.simpler))
    assert same(first, second) or distance(first, second) <= row.within
    assert not same(first, setting("fedavg").task.w0)  # it did train


@every_method
def test_bytes_are_those_of_the_specification(row: Row) -> None:
    made, _, (done, *_) = shared(row.name)
    asked = len(SIZES) if row.name == "local" else 4
    assert done.cost.down_bytes == asked * row.down.total(made.task.model)
    up = asked * row.up.total(made.task.model) + len(SIZES) * row.once
    assert done.cost.up_bytes == up


@every_method
def test_the_global_random_state_is_left_alone(row: Row) -> None:
    middle = shared(row.name).states[2]
    before = torch.get_rng_state()
    made = setting(row.method)
    begin(made)
    advance(made, middle, evaluate=True)
    assert torch.equal(torch.get_rng_state(), before)


@every_method
def test_a_newcomer_has_a_personal_model(row: Row) -> None:
    """It is built from the server's state and the newcomer's data, and changes neither."""
    made, (_, _, end, *_), _ = shared(row.name)
    before = digest_of(end)
    (found,) = join(made, end, federation(sizes=(30, 18), seed=7), (None,))
    scores = {score.model: score.figures for score in found.scores if score.split == "test"}
    assert scores["newcomer"].n.tolist() == [6, 3]
    assert np.isfinite(scores["newcomer"].loss).all()
    assert digest_of(end) == before


PATHS = {name: method.path() for name, method in METHODS.items()}
FROM_SHARED = [name for name, path in PATHS.items() if path is not None and path.from_shared]


@pytest.mark.parametrize("name", FROM_SHARED)
def test_a_path_from_the_shared_model_begins_there(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shared model's scores are those of the first point, as if it had been measured."""
    made, (*_, middle, _), steps = shared(name)
    taken = steps[3].evaluation
    path = made.method.path()._replace(from_shared=False)
    monkeypatch.setattr(type(made.method), "path", lambda self: path)
    assert repr(taken) == repr(advance(made, middle, evaluate=True)[1].evaluation)


@every_method
def test_it_learns_a_separable_toy(row: Row) -> None:
    """Clouds of deviation 0.4 around centres some three apart: a fitted model errs on few."""
    made = setting(row.method, rounds=5, epochs=2)
    end = played(made, 4)
    _, done = advance(made, end, evaluate=True)
    assert done.evaluation("personal").figures.top1.mean() > 0.9


@every_method
def test_it_stores_nothing_but_its_settings(row: Row) -> None:
    method = METHODS[row.name]
    assert isinstance(method, Method)
    before = repr(method)
    made = setting(row.method)
    advance(made, begin(made), evaluate=True)
    assert repr(method) == before
    with pytest.raises(AttributeError):
        method.anything = 1  # type: ignore[attr-defined]


@every_method
def test_its_rounds_call_the_functions_that_it_declares(row: Row) -> None:
    """A site answers these and no others."""
    called: set[str] = set()

    class Noting(Wire):
        def run(self, setting: RunContext, call: Call, requests: Iterator[Request]) -> Any:
            if call.purpose != "evaluate":
                name = getattr(call.function, "__name__", "")
                assert call.function == getattr(setting.method, name)
                called.add(name)
            return Wire.run(self, setting, call, requests)

    made = setting(row.method, Noting())
    played(made, 4)
    assert called == set(made.method.about().calls)
