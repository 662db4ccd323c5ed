from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golden import check, raises
from isthmus import Federation, tree
from isthmus.cohort import Clients, Round
from isthmus.context import Call, Engine, Request
from isthmus.engines.base import ClientError
from isthmus.engines.loop import Loop, make_client
from isthmus.engines.stacked import Stacked
from isthmus.errors import IsthmusError
from isthmus.method import Method, Networks
from isthmus.methods.superfed import SuPerFed
from isthmus.metrics.score import tally
from odd_engines import Flaky, Wire
from small import SIZES, begin, federation, network, played, setting

both_engines = pytest.mark.parametrize("engine", [Loop(), Stacked(2)], ids=["loop", "stacked"])


class Trace(NamedTuple):
    """Both ends after each step of the longest client; a client that has ended stays put."""

    wf: Tensor
    wl: Tensor
    seen: Tensor  # examples so far


def steps_of(engine: Any, method: str, steps: int) -> Trace:
    """Follows SuPerFed's objective step by step, for all clients."""
    made = setting({"name": method, "start": 0.0}, engine)
    inner: SuPerFed = made.method  # type: ignore[assignment]

    def follow(client: Any, own: Any, server: Any) -> Any:
        def step(carry: Any, batch: Any) -> Any:
            wf, wl, seen, t, trace_f, trace_l, trace_n = carry

            def objective(w: Any) -> Tensor:
                lam = batch.u[client.model.layer] if inner.mix == "layer" else batch.u
                z = (1 - lam) * w[0] + lam * w[1]
                return client.loss(z, batch) + (w[0] - server.w).square().sum()

            gf, gl = client.gradient(objective, (wf, wl))
            wf, wl = wf - 0.1 * gf, wl - 0.1 * gl
            seen = seen + batch.mean(torch.ones_like(batch.y, dtype=wf.dtype))
            here = torch.arange(steps) >= t
            trace_f = torch.where(here[:, None], wf, trace_f)
            trace_l = torch.where(here[:, None], wl, trace_l)
            return wf, wl, seen, t + 1, trace_f, trace_l, torch.where(here, seen, trace_n)

        nothing = torch.zeros(steps, client.model.size)
        start = (server.w, own.wl, torch.tensor(0.0), torch.tensor(0))
        end = client.scan(step, (*start, nothing, nothing, torch.zeros(steps)), passes=2)
        return own, Trace(*end[4:])

    round = Round(made, 0, {})
    _, trace = Clients(range(len(SIZES)), round).map(follow, made.method.init(made.task))
    return trace  # type: ignore[no-any-return]


@pytest.mark.parametrize("method", ["superfed-mm", "superfed-lm"])
def test_stacked_follows_loop_step_by_step(method: str) -> None:
    """Every step may add about 1e-7 of rounding to vectors of size 1; eight steps, 2e-6.

    Clients of 5 to 27 examples in batches of eight take one to four steps a pass.
    """
    loop, stacked = (steps_of(engine, method, 8) for engine in (Loop(), Stacked(block=4)))
    for s in range(8):
        assert (loop.wf[:, s] - stacked.wf[:, s]).abs().max() < 2.5e-7 * (s + 1)
        assert (loop.wl[:, s] - stacked.wl[:, s]).abs().max() < 2.5e-7 * (s + 1)
    assert torch.equal(loop.seen, stacked.seen)
    assert loop.seen[:, -1].tolist() == [2, 8, 6, 6, 4, 4]  # steps taken: two passes each


def test_a_convolution_agrees_at_the_first_steps() -> None:
    """Single ReLU flips separate longer runs of any two summation orders."""
    from isthmus.models.plain import twocnn

    rng = np.random.default_rng(0)
    x, y = rng.random((60, 1, 12, 12)).astype(np.float32), rng.integers(3, size=60)
    data = Federation.of(x, y, np.repeat([0, 1, 2], 20))
    ends = []
    for engine in (Loop(), Stacked(block=3)):
        made = setting(
            "superfed-mm",
            engine,
            data,
            partial(twocnn, (1, 12, 12), 3),
            epochs=1,
            lr=0.01,
            clients_per_round=3,
        )
        ends.append(played(made, 1).server.w)
    assert (ends[0] - ends[1]).abs().max() < 1e-6


class Unrolled(nn.Module):
    """A network whose own forward pass takes the memory's order for granted."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 5)
        self.last = nn.Linear(4 * 8 * 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.convolution(x).view(len(x), -1))  # type: ignore[no-any-return]


def plain_layers() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 5), nn.Flatten(), nn.Linear(4 * 8 * 8, 3))


@pytest.mark.parametrize(("build", "last"), [(plain_layers, True), (Unrolled, False)])
def test_images_have_their_channels_last_where_that_cannot_be_noticed(
    build: Any, last: bool
) -> None:
    """A batch says so; the gradient of one step is that of the same images as they came."""
    rng = np.random.default_rng(0)
    x, y = rng.random((40, 3, 12, 12)).astype(np.float32), rng.integers(3, size=40)
    data = Federation.of(x, y, np.repeat([0, 1], 20), validation=0.2)
    made = setting("fedavg", data=data, build=build)
    seen: list[tuple[bool, Tensor, Tensor]] = []

    def look(client: Any, own: Any, w: Tensor) -> Any:
        def step(w: Tensor, batch: Any) -> Tensor:
            given = batch.x.is_contiguous(memory_format=torch.channels_last)
            plain = batch._replace(x=batch.x.contiguous())
            ours, theirs = (partial(client.loss, batch=each) for each in (batch, plain))
            seen.append((given, client.gradient(ours, w), client.gradient(theirs, w)))
            return w

        return own, client.scan(step, w, 1)

    Clients([0, 1], Round(made, 0, {})).map(look, made.method.init(made.task).w)
    assert len(seen) == 4  # two batches of each client
    for is_last, ours, plain in seen:
        assert is_last == last
        assert torch.allclose(ours, plain, rtol=0, atol=1e-6)
    assert played(made, 1).server.w.isfinite().all()


@dataclass(frozen=True)
class Faulty(Method):
    """Fails in one way or another."""

    fault: str = "raise"

    def init(self, task: Any) -> Any:
        return (task.w0,)

    def round(self, server: Any, clients: Any) -> Any:
        clients.map(self.local, server)
        return server

    def local(self, client: Any, own: Any, server: Any) -> Any:
        if self.fault == "raise":
            raise KeyError("lost")
        if self.fault == "random":
            return own, (server[0] + torch.rand(1),)
        if self.fault == "branch":
            return own, (server[0] if client.n > 10 else -server[0],)
        if self.fault == "passes":
            return own, (client.descend(server[0], epochs=99),)
        return own, (3.0,)


def fails(fault: str, engine: Any) -> str:
    made = setting("fedavg", engine)._replace(method=Faulty(fault))
    with pytest.raises((ClientError, TypeError)) as caught:
        made.method.round((made.task.w0,), Clients([3, 5], Round(made, 6, {})))
    return str(caught.value)


def test_an_exception_names_client_round_and_function() -> None:
    check(fails("raise", Loop()))
    check(fails("raise", Stacked(4)))


@pytest.mark.parametrize("fault", ["random", "branch"])
def test_stacked_refuses_what_one_program_cannot_do(fault: str) -> None:
    """A stray random number, or an `if` on a tensor."""
    check(fails(fault, Stacked(4)))


@both_engines
def test_a_method_may_not_make_more_passes_than_it_announces(engine: Any) -> None:
    check(fails("passes", engine))


def test_a_message_must_be_tensors() -> None:
    check(fails("number", Loop()))


def test_blocks_of_one_and_of_all_agree() -> None:
    ends = [played(setting("superfed-lm", Stacked(block)), 4).server.w for block in (1, 2, 16)]
    assert (ends[0] - ends[1]).abs().max() < 1e-5
    assert (ends[0] - ends[2]).abs().max() < 1e-5


def normalised() -> nn.Module:
    norm = nn.BatchNorm1d(8, track_running_stats=False)
    return nn.Sequential(nn.Linear(6, 8), norm, nn.ReLU(), nn.Linear(8, 3))


@pytest.mark.parametrize("build", [network, normalised])
def test_a_part_is_scored_as_if_it_were_alone(build: Any) -> None:
    """Parts go through the network together, but where it would normalise them together."""
    made = setting("fedavg", build=build)
    client = make_client(made, Call(len, (), 0, "evaluate", 0), Request(1, (), ()))
    path = torch.stack([made.task.w0, made.task.model.fresh(seed=3)])
    for w in (made.task.w0, path):
        together = client.tallies(w, "validation", "test")
        for split, sums in zip(("validation", "test"), together, strict=True):
            x, y = made.federation.split(1, split)
            rows = w if w.dim() == 2 else w[None]
            logits = torch.stack([made.task.model.logits(row, x) for row in rows])
            alone = tally(logits if w.dim() == 2 else logits[0], y)
            assert all(map(torch.allclose, tree.leaves(sums), tree.leaves(alone)))


@both_engines
def test_label_counts_leave_out_padding(engine: Any) -> None:
    """Each engine counts the training labels that the federation has."""
    made = setting("fedavg", engine, federation())

    def census(client: Any, own: Any) -> Any:
        return own, (client.label_counts(), client.n, client.steps)

    _, (counts, n, steps) = Clients(range(6), Round(made, 0, {})).map(census)
    for i in range(6):
        labels = made.federation.split(i, "train").y
        assert counts[i].tolist() == labels.bincount(minlength=3).tolist()
        assert (n[i], steps[i]) == (len(labels), 2 * -(-len(labels) // 8))


def test_clients_of_different_kinds_share_no_block() -> None:
    """States of two shapes, by parity: each is carried on and comes back as it was plus one."""

    @dataclass(frozen=True)
    class Kinds(Method):
        def own(self, task: Any, i: int) -> Any:
            return (torch.zeros(2 + i % 2),)

        def networks(self) -> Networks:
            return Networks(kind=lambda i: i % 2)

        def local(self, client: Any, own: Any) -> Any:
            return (own[0] + 1 + client.kind,), (client.n,)

    made = setting("fedavg", Stacked(6))._replace(method=Kinds())
    round = Round(made, 0, {})
    ids, _ = Clients(range(6), round).map(Kinds().local)
    assert ids.tolist() == list(range(6))
    assert [own[0].tolist() for own in round.changed.values()] == [
        [1.0] * 2 if i % 2 == 0 else [2.0] * 3 for i in round.changed
    ]


@both_engines
def test_each_gives_every_client_its_own_message(engine: Any) -> None:
    round = Round(setting("fedavg", engine), 0, {})

    def echo(client: Any, own: Any, common: Tensor, mine: Tensor) -> Any:
        return own, (common + mine,)

    own_messages = torch.tensor([4.0, 1.0, 2.0])
    ids, (heard,) = Clients([4, 1, 2], round).map(echo, torch.tensor(10.0), each=own_messages)
    assert (ids.tolist(), heard.tolist()) == ([1, 2, 4], [11, 12, 14])
    assert (round.down, round.up) == (3 * 4 + 3 * 4, 3 * 4)


def test_a_second_call_in_a_round_draws_other_batches() -> None:
    made = setting("fedavg")
    round = Round(made, 0, {})
    clients = Clients([1, 2], round)

    def first_rows(client: Any, own: Any) -> Any:
        """Puts the first row of each batch behind those before, as digits are."""
        return own, (client.scan(lambda seen, batch: 100 * seen + batch.rows[0], torch.tensor(0)),)

    (one,), (two,) = clients.map(first_rows)[1], clients.map(first_rows)[1]
    assert not torch.equal(one, two)


@both_engines
def test_what_the_objective_does_not_look_at_only_decays(engine: Any) -> None:
    """One step of w <- w - lr wd w, from 1: 1 - 0.1 * 0.5."""
    changes = {"lr": 0.1, "lr_decay": 1.0, "momentum": 0.0, "weight_decay": 0.5, "epochs": 1}
    made = setting("fedavg", engine, federation((7, 7)), batch_size=7, **changes)

    def unused(client: Any, own: Any, w: torch.Tensor) -> Any:
        start = (w, torch.ones(3), torch.ones(0))
        return own, client.descend(start, at=lambda vectors, u: vectors[0])[1:]

    _, (lonely, nothing) = Clients([0, 1], Round(made, 0, {})).map(unused, made.task.w0)
    assert torch.allclose(lonely, torch.full((2, 3), 0.95))
    assert nothing.shape == (2, 0)


@both_engines
def test_an_objective_that_looks_at_nothing_moves_nothing(engine: Any) -> None:
    made = setting("fedavg", engine, federation((7, 7)), weight_decay=0.0)

    def constant(client: Any, own: Any, w: torch.Tensor) -> Any:
        return own, client.descend(torch.ones(3), at=lambda vector, u: w)

    _, found = Clients([0, 1], Round(made, 0, {})).map(constant, made.task.w0)
    assert torch.equal(found, torch.ones(2, 3))


@pytest.mark.parametrize("engine", [Loop(), Loop(workers=2), Stacked(2)])
def test_what_is_too_small_for_its_precision_is_zero(engine: Any) -> None:
    """Half of the least normal number, in whatever process a client is computed."""
    if not torch.set_flush_denormal(True):
        pytest.skip("the processor cannot do so")
    torch.set_flush_denormal(False)
    made = setting("fedavg", engine)
    small = torch.tensor(torch.finfo(torch.float32).tiny)
    _, found = Clients([0, 1], Round(made, 0, {})).map(halve, small)
    engine.close()
    assert found.tolist() == [0, 0]
    assert (small / 2).item() > 0  # as before


def halve(client: Any, own: Any, small: Tensor) -> Any:
    return own, small / 2


@pytest.mark.parametrize("engine", [Loop(), Stacked(2), Wire(), Flaky(lambda t, i: False)])
def test_every_engine_keeps_the_whole_protocol(engine: Engine) -> None:
    assert engine.describe("as asked for")
    assert not engine.notes
    assert engine.workers == 1
    if isinstance(engine, Stacked):
        with raises(IsthmusError):
            engine.watch()
    else:
        assert engine.watch()() == {}  # nothing has run yet
    engine.close()


def test_the_number_of_threads_is_put_back() -> None:
    before = torch.get_num_threads()
    played(setting("fedavg"), 1, begin(setting("fedavg")))
    assert torch.get_num_threads() == before
