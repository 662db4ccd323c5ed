"""What a run will need, before it starts: time, memory, disk and traffic.

One client is tried out, for some steps of the rounds in which a method changes and of those
between, and evaluated once; the rest is counted. Seconds are the processor's, so that
what others do meanwhile does not count: a run takes longer on cores that it shares. That a run
stops before its last round, since `patience` asks for it, is not foreseen. docs/engines.md has
estimates beside what was true.
"""

import shutil
import time
from collections.abc import Iterator
from itertools import pairwise
from math import ceil, log
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isthmus import tree
from isthmus.cohort import Clients, DivergenceError, Round
from isthmus.config.experiment import Experiment
from isthmus.context import Call, Request, Setting
from isthmus.engines.base import one_thread, steps_per_pass
from isthmus.engines.loop import Loop
from isthmus.engines.ray import RayEngine
from isthmus.errors import IsthmusError
from isthmus.evaluation import score
from isthmus.method import State
from isthmus.shelf import Shelf, after
from isthmus.system.files import explain_unwritable
from isthmus.system.machine import explain_lack_of_memory, free_memory
from isthmus.training.sampler import StepSampler

LASTS = 1.9  # how many times its patience a client trains that stops by itself: 1.3 to 2.9
VECTORS = 16  # of P parameters, that one client's training holds at a time
TESTED = 200  # of the server's test examples
LONGEST = 100 * 365 * 24 * 3600  # seconds
ROW = 90  # bytes of a line in clients.csv, which is kept twice


class Estimate(NamedTuple):
    """What a run is expected to need in all."""

    seconds: float
    ram_bytes: int  # besides what the program and the data take now
    disk_bytes: int
    wire_bytes: int

    def keep_best(self, setting: Setting) -> "Estimate":
        """Adds what the clients' best models take."""
        return self._replace(disk_bytes=self.disk_bytes + count_best_bytes(setting))


def count_best_bytes(setting: Setting) -> int:
    """Counts the bytes of all clients' best models, of a round and the one before it."""
    return 2 * setting.task.clients * setting.task.w0.nbytes


class First(Loop):
    """An engine that runs the first client it is asked for, and answers the same for all others."""

    spent = 0.0  # on that client
    seconds = 0.0  # that all of them would take

    def __init__(self, sampler: StepSampler, device: str):
        Loop.__init__(self, compiled=sampler, device=device)
        self.sampler = sampler
        self.means: tuple[float, float] | None = None  # of all clients: steps, examples
        if device != "cpu":
            sampler.clock = time.perf_counter

    def tell(self) -> float:
        """Gives the time, as it would be if all steps had been taken."""
        return self.sampler.clock() + self.sampler.ahead

    def run(
        self, setting: Setting, call: Call, requests: Iterator[Request]
    ) -> Iterator[tuple[int, Any]]:
        """Yields the first client's result for every client."""
        first = next(requests)
        others = [request.i for request in requests]
        began = self.tell()
        result = self.compute(setting, call, first)
        seconds = self.tell() - began
        self.spent += seconds
        self.seconds += (1 + len(others)) * seconds * self._weigh(setting, first.i, call.purpose)
        yield from ((i, result) for i in (first.i, *others))

    def _weigh(self, setting: Setting, i: int, purpose: str) -> float:
        """Gives the work of the average client over that of one."""
        federation, size = setting.federation, setting.task.batch_size
        if len(federation) == 1:
            return 1.0
        if self.means is None:
            sizes = [federation.sizes(each) for each in range(len(federation))]
            steps = [steps_per_pass(train, size) for train, *_ in sizes]
            self.means = mean(steps), mean(map(sum, sizes))
        if purpose == "train":
            return self.means[0] / max(1, steps_per_pass(federation.sizes(i)[0], size))
        return self.means[1] / max(1, sum(federation.sizes(i)))


class Trial(NamedTuple):
    """One round, in which one client stands for all."""

    round: Round
    server: State
    seconds: float  # of all clients in the round
    server_seconds: float  # of the server

    @property
    def wire(self) -> int:
        """The bytes that the round sent."""
        return self.round.down + self.round.up

    @property
    def shelf(self) -> int:
        """The bytes that the round put on the shelf."""
        return sum(t.nbytes for t in self.round.shelf.changed.values() if t is not None)


class TrialEvaluation(NamedTuple):
    """One evaluation of one client, which stands for all."""

    seconds: float
    server_seconds: float  # of the shared model on the server's test set
    rows: int  # that it adds to clients.csv


def _try_round(setting: Setting, engine: First, t: int, before: Trial | None) -> Trial:
    method, setting = setting.method, setting._replace(engine=engine)
    engine.seconds = engine.spent = 0.0
    own, shelf = (before.round.changed, before.round.shelf.changed) if before else ({}, {})
    round = Round(setting, t, own, shelf=Shelf(after({}, shelf)))
    server = before.server if before else method.init(setting.task)
    with one_thread():
        began = engine.tell()
        server = method.round(server, Clients(range(setting.task.clients_per_round), round))
        on_server = engine.tell() - began - engine.spent
    return Trial(round, server, engine.seconds, on_server)


def _try_evaluation(setting: Setting, engine: First, last: Trial) -> TrialEvaluation:
    setting, round = setting._replace(engine=engine), last.round
    engine.seconds = engine.spent = 0.0
    one = Clients([0], Round(setting, round.t, round.changed, shelf=round.shelf))
    with one_thread():
        began = engine.tell()
        delivery = setting.method.deliver(last.server, one)
        scores = score(setting, one, delivery)
        seconds = engine.tell() - began - engine.spent + engine.seconds
        tested = _time_server_test(setting, engine, delivery.common)
    return TrialEvaluation(seconds, tested, sum(each.figures.n.size for each in scores))


def _time_server_test(setting: Setting, engine: First, common: Tensor | None) -> float:
    """Times the shared model on some of the server's test examples, for all of them."""
    test = setting.federation.server_test()
    if common is None or not len(test.y):
        return 0.0
    some = test.x[:TESTED]
    began = engine.tell()
    with torch.no_grad():
        setting.task.model.logits(common, some)
    return (engine.tell() - began) * len(test.y) / len(some)


@explain_lack_of_memory()
def estimate(experiment: Experiment, setting: Setting) -> Estimate | None:
    """Tries one client out and counts up; None if it diverges: the run itself will say when."""
    clients, rounds = setting.task.clients, experiment.rounds
    turns = [t for t in setting.method.schedule(rounds) if 0 < t < rounds - 1]
    # What comes and goes within a step: parameters, gradients, momenta, and what they pass through.
    working = VECTORS * setting.task.w0.nbytes
    _fits("of memory", working, free_memory())
    will_compile = experiment.step == "compiled"
    fills = will_compile and not setting.task.model.mixes_examples
    engine = First(StepSampler(experiment.batch_size, will_compile, fills), experiment.device)
    phases: list[tuple[int, Trial]] = []  # so many rounds like this one
    last: Trial | None = None
    try:
        # In the first round, and where the method changes, some things are done that are not done
        # in those that follow.
        for begin, end in pairwise([0, *turns, rounds]):
            last = _try_round(setting, engine, begin, last)
            phases.append((1, last))
            if end - begin > 1:
                last = _try_round(setting, engine, end - 1, last)
                phases.append((end - begin - 1, last))
        assert last is not None
        evaluation = _try_evaluation(setting, engine, last)
    except DivergenceError:
        return None
    asked = len(last.round.asked) or 1  # nobody, where data are pooled
    own = sum(tree.nbytes(state) for state in last.round.changed.values())  # of all of them
    every = experiment.eval_every
    evaluations = rounds // every + (rounds % every > 0) if every else 1
    seen = clients * (1 - (1 - asked / clients) ** rounds)
    each = [
        (n, _time_clients(setting, asked, trial.seconds, trial.round) + trial.server_seconds)
        for n, trial in phases
    ]
    worked = sum(n * seconds for n, seconds in each) * count_rounds(experiment) / rounds
    evaluated = clients if setting.evaluated is None else len(setting.evaluated)
    scores = evaluated * evaluation.rows
    judged = evaluated * evaluation.seconds / setting.engine.workers + evaluation.server_seconds
    return Estimate(
        seconds=worked + evaluations * judged,
        ram_bytes=int(working + 2 * (own + last.round.up) + scores * 100),
        # The state is written beside the old one before that is given up; what a round puts on the
        # shelf is taken off at the latest when everybody has taken part again.
        disk_bytes=int(
            2 * seen * own / asked
            + 2 * tree.nbytes(last.server)
            + sum(trial.shelf for n, trial in phases if n == 1)
            + last.shelf * min(rounds, _everybody(clients, asked))
            + evaluations * scores * ROW * 1.3
        ),
        wire_bytes=sum(n * trial.wire for n, trial in phases),
    )


def _time_clients(setting: Setting, asked: int, seconds: float, round: Round) -> float:
    """Gives how long the clients of a round take, of so many seconds in all."""
    engine, each = setting.engine, seconds / asked
    if isinstance(engine, RayEngine):
        return engine.time_call(asked, each, round.down // asked, round.up // asked)
    return ceil(asked / engine.workers) * each


def count_rounds(experiment: Experiment) -> float:
    """Counts the rounds in which clients train: about, where they stop by themselves.

    >>> count_rounds(Experiment(method="local", rounds=500))
    19.0
    """
    method, rounds = experiment.method, experiment.rounds
    stops = method.get("budget") == "full" and "patience" in method
    return min(rounds, LASTS * method["patience"]) if stops else rounds


def _everybody(clients: int, asked: int) -> float:
    """Gives about how many rounds it takes until every client has taken part."""
    return 1 if asked >= clients else (log(clients) + 1) / -log(1 - asked / clients)


def refuse_what_cannot_fit(needed: Estimate, out: Path) -> None:
    """Raises an error where memory or disk would not suffice."""
    place = out
    with explain_unwritable(out):
        while not place.exists():
            place = place.parent
        free = shutil.disk_usage(place).free
    if needed.seconds > LONGEST:
        raise IsthmusError(
            f"it would take about {needed.seconds / LONGEST * 100:,.0f} years; expected an end; "
            "lower rounds, epochs or the size of the model"
        )
    _fits("on disk", needed.disk_bytes, free)
    _fits("of memory", needed.ram_bytes, free_memory())


def _fits(what: str, wanted: int, free: int | None) -> None:
    if free is not None and wanted > free:
        raise IsthmusError(
            f"the run needs about {wanted / 1e6:,.0f} MB {what}, {free / 1e6:,.0f} MB are free; "
            "expected it to fit; lower clients, clients_per_round or the size of the model, or "
            "raise eval_every"
        )
