"""What a run will need, before it starts: time, memory, disk and traffic.

One client is tried out, for one epoch of the last round and one evaluation; the rest is counted.
The figures are rough: they tell minutes from hours, and what fits from what does not.
"""

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from isthmus import tree
from isthmus.cohort import Call, Clients, DivergenceError, Request, Round, Setting
from isthmus.engines.base import one_thread
from isthmus.engines.loop import Loop
from isthmus.errors import IsthmusError
from isthmus.experiment import Experiment
from isthmus.memory import free_memory

VECTORS = 16  # of P parameters, that one client's training holds at a time
ROW = 90  # bytes of a line in clients.csv, which is kept twice


class Estimate(NamedTuple):
    """What a run is expected to need in all."""

    seconds: float
    ram_bytes: int  # besides what the program and the data take now
    disk_bytes: int
    wire_bytes: int


class One(Clients):
    """One client that stands for all of them."""

    @property
    def all(self) -> "One":
        """The same client."""
        return self

    def _on_server(self, common: Tensor | None) -> None:
        """Leaves out what is done once and not for every client."""


class First:
    """An engine that runs the first client it is asked for, and loses all the others."""

    def run(
        self, setting: Setting, call: Call, requests: Iterator[Request]
    ) -> Iterator[tuple[int, Any]]:
        """Yields the first client's result; asks for all, so that what is sent is counted."""
        first, *_ = list(requests)
        yield from Loop().run(setting, call, iter([first]))


def estimate(experiment: Experiment, setting: Setting) -> Estimate | None:
    """Tries one client out and counts up; None if it diverges: the run itself will say when."""
    method, clients = setting.method, setting.task.clients
    # What comes and goes within a step: parameters, gradients, momenta, and what they pass through.
    working = VECTORS * setting.task.w0.nbytes
    _fits("of memory", working, free_memory())
    few = setting._replace(task=replace(setting.task, epochs=1), engine=First())
    last = experiment.rounds - 1
    try:
        for _ in range(2):  # the first time, much is done for the first time
            with one_thread():
                began = time.perf_counter()
                round = Round(few, last, {})
                ids = range(experiment.clients_per_round)
                server = method.round(method.init(few.task), Clients(ids, round))
                trained = time.perf_counter() - began
                scored = Round(few, last, {}, changed=dict(round.changed), shelf=round.shelf)
                evaluation = method.evaluate(server, One([0], scored))
                evaluated = time.perf_counter() - began - trained
    except DivergenceError:
        return None
    asked = len(round.asked)
    own = sum(tree.nbytes(state) for state in round.changed.values())
    reply = round.up
    rows = sum(score.figures.n.size for score in evaluation.scores)
    every = experiment.eval_every
    evaluations = experiment.rounds // every + (experiment.rounds % every > 0) if every else 1
    seen = clients * (1 - (1 - asked / clients) ** experiment.rounds)
    rounds = experiment.rounds * asked
    return Estimate(
        seconds=rounds * trained * experiment.epochs + evaluations * clients * evaluated,
        ram_bytes=int(working + 2 * asked * (own + reply) + clients * rows * 100),
        # The state is written beside the old one before that is given up.
        disk_bytes=int(
            2 * seen * own + 2 * tree.nbytes(server) + evaluations * clients * rows * ROW * 1.3
        ),
        wire_bytes=experiment.rounds * (round.down + asked * reply),
    )


def refuse_what_cannot_fit(needed: Estimate, out: Path) -> None:
    """Raises an error where memory or disk would not suffice."""
    place = out
    while not place.exists():
        place = place.parent
    _fits("on disk", needed.disk_bytes, shutil.disk_usage(place).free)
    _fits("of memory", needed.ram_bytes, free_memory())


def _fits(what: str, wanted: int, free: int | None) -> None:
    if free is not None and wanted > free:
        raise IsthmusError(
            f"the run needs about {wanted / 1e6:,.0f} MB {what}, {free / 1e6:,.0f} MB are free; "
            "expected it to fit; lower clients, clients_per_round or the size of the model, or "
            "raise eval_every"
        )
