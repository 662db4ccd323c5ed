"""Trials before a run: some rounds and an evaluation, in which one client stands for all.

For `stacked`, a block of clients does. Of the steps of a client a few are taken, and the others
counted. Seconds are the processor's, so that what others do meanwhile does not count.
"""

import time
from collections.abc import Iterator
from itertools import islice, pairwise
from math import ceil
from statistics import mean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isthmus import tree
from isthmus.cohort import Clients, Round
from isthmus.context import Call, Request, RunContext
from isthmus.engines.base import one_thread, steps_per_pass
from isthmus.engines.loop import Loop
from isthmus.engines.stacked import Stacked
from isthmus.evaluation import score
from isthmus.experiment.settings import Experiment
from isthmus.method import State
from isthmus.run.sampler import StepSampler
from isthmus.shelf import Shelf, after

TESTED = 200  # of the server's test examples


class First(Loop):
    """An engine that runs the first clients it is asked for, and answers the same for all others.

    As many at a time as the engine of the run does: one, or a block of them.
    """

    spent = 0.0  # on those clients
    seconds = 0.0  # that all of them would take

    def __init__(self, experiment: Experiment, setting: RunContext):
        Loop.__init__(self, device=experiment.device)
        self.sampler = StepSampler.of_run(experiment, setting)
        self.together = 1
        self.inner: Loop | Stacked = Loop(compiled=self.sampler, device=experiment.device)
        if isinstance(setting.engine, Stacked):
            self.together = setting.engine.block
            self.inner = Stacked(self.together, experiment.device, self.sampler.sample)
        if experiment.device != "cpu":
            self.sampler.clock = time.perf_counter
        self.means: tuple[float, float] | None = None  # of all clients: steps, examples

    def tell(self) -> float:
        """Gives the time, as it would be if all steps had been taken."""
        return self.sampler.clock() + self.sampler.ahead

    def run(
        self, setting: RunContext, call: Call, requests: Iterator[Request]
    ) -> Iterator[tuple[int, Any]]:
        """Yields the first client's result for every client that is not among the first."""
        members = list(islice(requests, self.together))
        others = [request.i for request in requests]
        self.sampler.begin(call.t)
        results, seconds = self._run(setting, call, members)
        if call.purpose != "train":  # the first time, torch prepares itself
            results, seconds = self._run(setting, call, members)
        weight = self._weigh(setting, members[0].i, call.purpose) if self.together == 1 else 1.0
        blocks = ceil((len(members) + len(others)) / len(members))
        self.seconds += blocks * seconds * weight
        yield from results.items()
        yield from ((i, results[members[0].i]) for i in others)

    def _run(
        self, setting: RunContext, call: Call, members: list[Request]
    ) -> tuple[dict[int, Any], float]:
        """Gives some clients' results, and the seconds that they take."""
        began = self.tell()
        results = dict(self.inner.run(setting, call, iter(members)))
        seconds = self.tell() - began
        self.spent += seconds
        return results, seconds

    def _weigh(self, setting: RunContext, i: int, purpose: str) -> float:
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


class TrialRound(NamedTuple):
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

    @property
    def own(self) -> int:
        """The bytes that its clients keep."""
        return sum(tree.nbytes(state) for state in self.round.changed.values())


class TrialEvaluation(NamedTuple):
    """One evaluation, in which one client stands for all."""

    seconds: float  # of a client
    server_seconds: float  # of the server: what is made for all clients, its own test set
    rows: float  # that a client adds to clients.csv


class Trial(NamedTuple):
    """All that was tried."""

    phases: list[tuple[int, TrialRound]]  # so many rounds like this one
    evaluation: TrialEvaluation
    programs: int  # that its steps would be compiled into

    @property
    def last(self) -> TrialRound:
        """The last round."""
        return self.phases[-1][1]


def try_out(experiment: Experiment, setting: RunContext) -> Trial:
    """Tries the first round, those in which the method changes, and one of those between.

    In the first round, and where the method changes, some things are done that are not done in
    those that follow.
    """
    rounds = experiment.rounds
    turns = [t for t in setting.method.schedule(rounds) if 0 < t < rounds - 1]
    engine = First(experiment, setting)
    phases: list[tuple[int, TrialRound]] = []
    last: TrialRound | None = None
    for begin, end in pairwise([0, *turns, rounds]):
        last = _try_round(setting, engine, begin, last)
        phases.append((1, last))
        if end - begin > 1:
            last = _try_round(setting, engine, end - 1, last)
            phases.append((end - begin - 1, last))
    assert last is not None
    evaluation = _try_evaluation(setting, engine, last)
    return Trial(phases, evaluation, len(engine.sampler.kinds))


def _try_round(setting: RunContext, engine: First, t: int, before: TrialRound | None) -> TrialRound:
    method, setting = setting.method, setting._replace(engine=engine)
    engine.seconds = engine.spent = 0.0
    own, shelf = (before.round.changed, before.round.shelf.changed) if before else ({}, {})
    round = Round(setting, t, own, shelf=Shelf(after({}, shelf)))
    server = before.server if before else method.init(setting.task)
    with one_thread():
        began = engine.tell()
        server = method.round(server, Clients(range(setting.task.clients_per_round), round))
        on_server = engine.tell() - began - engine.spent
    return TrialRound(round, server, engine.seconds, on_server)


def _try_evaluation(setting: RunContext, engine: First, last: TrialRound) -> TrialEvaluation:
    setting, round = setting._replace(engine=engine), last.round
    engine.seconds = engine.spent = 0.0
    some = range(min(engine.together, setting.task.clients))
    clients = Clients(some, Round(setting, round.t, round.changed, shelf=round.shelf))
    with one_thread():
        began = engine.tell()
        delivery = setting.method.deliver(last.server, clients)
        scores = score(setting, clients, delivery)
        on_server = engine.tell() - began - engine.spent
        tested = _time_server_test(setting, engine, delivery.common)
    rows = sum(each.figures.n.size for each in scores)
    return TrialEvaluation(engine.seconds / len(some), on_server + tested, rows / len(some))


def _time_server_test(setting: RunContext, engine: First, common: Tensor | None) -> float:
    """Times the shared model on some of the server's test examples, for all of them."""
    test = setting.federation.server_test()
    if common is None or not len(test.y):
        return 0.0
    some = test.x[:TESTED]
    began = engine.tell()
    with torch.no_grad():
        setting.task.model.logits(common, some)
    return (engine.tell() - began) * len(test.y) / len(some)
