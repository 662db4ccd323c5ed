"""What a run will need, before it starts: time, memory, disk and traffic.

One client is tried out, for one epoch of the first and of the last round, each followed by an
evaluation; the rest is counted. Seconds are the processor's, so that what others do meanwhile does
not count: a run takes longer on cores that it shares.
The figures are rough: they tell minutes from hours, and what fits from what does not.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil, log
from pathlib import Path
from typing import Any, NamedTuple

from isthmus import tree
from isthmus.cohort import Clients, DivergenceError, Round
from isthmus.config.experiment import Experiment
from isthmus.context import Call, Request, Setting
from isthmus.engines.base import one_thread
from isthmus.engines.loop import Loop
from isthmus.errors import IsthmusError
from isthmus.evaluation import score
from isthmus.method import State
from isthmus.shelf import Shelf, after
from isthmus.system.files import explain_unwritable
from isthmus.system.machine import explain_lack_of_memory, free_memory

COMPILED = 0.4  # of the time that a step takes which is not compiled
VECTORS = 16  # of P parameters, that one client's training holds at a time
LONGEST = 100 * 365 * 24 * 3600  # seconds
ROW = 90  # bytes of a line in clients.csv, which is kept twice


class Estimate(NamedTuple):
    """What a run is expected to need in all."""

    seconds: float
    ram_bytes: int  # besides what the program and the data take now
    disk_bytes: int
    wire_bytes: int


class First(Loop):
    """An engine that runs the first client it is asked for, and answers the same for all others."""

    seconds = 0.0  # that all of them would take
    clock: Callable[[], float] = time.process_time

    def run(
        self, setting: Setting, call: Call, requests: Iterator[Request]
    ) -> Iterator[tuple[int, Any]]:
        """Yields the first client's result for every client."""
        first = next(requests)
        others = [request.i for request in requests]
        began = self.clock()
        result = self.compute(setting, call, first)
        self.seconds += (1 + len(others)) * (self.clock() - began)
        yield from ((i, result) for i in (first.i, *others))


class Trial(NamedTuple):
    """One round and one evaluation, in which one client stands for all."""

    round: Round
    server: State
    seconds: float  # of the round
    evaluate_seconds: float  # of one client
    rows: int  # that it adds to clients.csv

    @property
    def wire(self) -> int:
        """The bytes that the round sent."""
        return self.round.down + self.round.up

    @property
    def shelf(self) -> int:
        """The bytes that the round put on the shelf."""
        return sum(t.nbytes for t in self.round.shelf.changed.values() if t is not None)


def _try_round(setting: Setting, engine: First, t: int, before: Trial | None) -> Trial:
    method, setting = setting.method, setting._replace(engine=engine)
    engine.seconds = 0.0
    own, shelf = (before.round.changed, before.round.shelf.changed) if before else ({}, {})
    round = Round(setting, t, own, shelf=Shelf(after({}, shelf)))
    server = before.server if before else method.init(setting.task)
    with one_thread():
        server = method.round(server, Clients(range(setting.task.clients_per_round), round))
        trained = engine.seconds
        scored = Round(setting, t, own, changed=dict(round.changed), shelf=round.shelf)
        began = engine.clock()
        one = Clients([0], scored)
        scores = score(setting, one, method.deliver(server, one))
        seconds = engine.clock() - began
    rows = sum(each.figures.n.size for each in scores)
    return Trial(round, server, trained, seconds, rows)


@explain_lack_of_memory()
def estimate(experiment: Experiment, setting: Setting) -> Estimate | None:
    """Tries one client out and counts up; None if it diverges: the run itself will say when."""
    clients, rounds = setting.task.clients, experiment.rounds
    turns = [t for t in setting.method.schedule(rounds) if 0 < t < rounds - 1]
    # What comes and goes within a step: parameters, gradients, momenta, and what they pass through.
    working = VECTORS * setting.task.w0.nbytes
    _fits("of memory", working, free_memory())
    few = setting._replace(task=replace(setting.task, epochs=1))
    engine = First(device=experiment.device)
    if experiment.device != "cpu":
        engine.clock = time.perf_counter
    try:
        # In the first round, and where the method changes, some things are done that are not done
        # in others.
        last = _try_round(few, engine, 0, None)
        seldom = [last]
        for t in turns:
            last = _try_round(few, engine, t, last)
            seldom.append(last)
        last = _try_round(few, engine, rounds - 1, last)
    except DivergenceError:
        return None
    asked = len(last.round.asked)
    own = sum(tree.nbytes(state) for state in last.round.changed.values())  # of all of them
    every = experiment.eval_every
    evaluations = rounds // every + (rounds % every > 0) if every else 1
    seen = clients * (1 - (1 - asked / clients) ** rounds)
    others = rounds - len(seldom)
    worked = sum(trial.seconds for trial in seldom) + others * last.seconds
    worked *= COMPILED if experiment.step == "compiled" else 1.0
    workers = setting.engine.workers
    waiting = ceil(asked / workers) / asked  # of a round's clients, those that one worker computes
    scores = clients * last.rows
    judged = evaluations * clients * last.evaluate_seconds / workers
    return Estimate(
        seconds=worked * experiment.epochs * waiting + judged,
        ram_bytes=int(working + 2 * (own + last.round.up) + scores * 100),
        # The state is written beside the old one before that is given up; what a round puts on the
        # shelf is taken off at the latest when everybody has taken part again.
        disk_bytes=int(
            2 * seen * own / asked
            + 2 * tree.nbytes(last.server)
            + sum(trial.shelf for trial in seldom)
            + last.shelf * min(rounds, _everybody(clients, asked))
            + evaluations * scores * ROW * 1.3
        ),
        wire_bytes=sum(trial.wire for trial in seldom) + others * last.wire,
    )


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
