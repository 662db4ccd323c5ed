"""What a run will need, before it starts: time, memory, disk and traffic.

One client is tried out (isthmus.run.trial), the rest is counted. Seconds are by the clock:
what others take of the processor during the trial, they are taken to take during the run. That a
run stops before its last round, since `patience` asks for it, is not foreseen. docs/engines.md has
estimates beside what was true.
"""

import shutil
from collections.abc import Sequence
from heapq import heapreplace
from math import ceil, log
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from isthmus import streams, tree
from isthmus.cohort import DivergenceError
from isthmus.context import RunContext
from isthmus.engines.base import steps_per_pass
from isthmus.engines.compiled import Compiled
from isthmus.engines.loop import Loop
from isthmus.engines.ray import RayEngine
from isthmus.errors import IsthmusError
from isthmus.experiment.settings import Experiment
from isthmus.run.trial import Trial, TrialRound, try_out
from isthmus.system.files import explain_unwritable
from isthmus.system.machine import (
    Crowd,
    PeakMemory,
    count_cores,
    explain_lack_of_memory,
    free_memory,
)

LASTS = 1.9  # how many times its patience a client trains that stops by itself: 1.3 to 2.9
VECTORS = 16  # of P parameters, that one client's training holds at a time
COHORTS = 200  # that are looked at
LOOK = 0.5  # seconds for which others' work is looked at, at least,
LOOK_SHARE = 0.02  # or this part of the run
LONGEST = 100 * 365 * 24 * 3600  # seconds

# Seconds, measured on a machine of 2026.
COMMIT = 0.012  # to write a round down
MESSAGE = 0.0005  # to ask a worker for a client's result, and to take it
FORK = 0.3  # until worker processes compute
COMPILER = 4.0  # until a process has its compiler,
PROGRAM = 2.0  # for each program that it makes,
LAYER = 2.0  # and for each of its network's layers
UNROLLED = 1.5  # times as long for each layer, where a program takes several steps
SHARED = 1.25  # times longer where all cores compute, which share caches and memory

# Bytes.
ROW = 90  # of a line in clients.csv,
TWICE = 1.45  # times as many with what the database keeps of it
FILES = 170_000  # of all other files of a run, and of the database without states
PAGE = 4096
PROCESS = 13_000_000  # of a worker, besides what it shares with the process that started it
LARGER = 1.4  # times what the trial takes that is taken for the largest of a worker's clients
COMPILING = 400_000_000  # of a process that compiles, and of its compiler


class Estimate(NamedTuple):
    """What a run is expected to need in all."""

    seconds: float
    ram_bytes: int  # besides what the program and the data take now
    disk_bytes: int
    wire_bytes: int

    def keep_best(self, setting: RunContext) -> "Estimate":
        """Adds what the clients' best models take."""
        return self._replace(disk_bytes=self.disk_bytes + count_best_bytes(setting))


def count_best_bytes(setting: RunContext) -> int:
    """Counts the bytes of all clients' best models, of a round and the one before it."""
    return 2 * setting.task.clients * setting.task.w0.nbytes


@explain_lack_of_memory()
def estimate(experiment: Experiment, setting: RunContext) -> Estimate | None:
    """Tries one client out and counts up; None if it diverges: the run itself will say when."""
    # What comes and goes within a step: parameters, gradients, momenta, and what they pass through.
    _fits("of memory", VECTORS * setting.task.w0.nbytes, free_memory())
    crowd, memory = Crowd(), PeakMemory()
    try:
        trial = try_out(experiment, setting)
    except DivergenceError:
        return None
    grown = max(memory.grow(), VECTORS * setting.task.w0.nbytes)
    seconds = _count_seconds(experiment, setting, trial)
    if not isinstance(setting.engine, RayEngine):  # whose nodes are others, or just starting
        processes = min(setting.engine.workers, count_cores())
        seconds *= crowd.slow_down(processes, min(LOOK, LOOK_SHARE * seconds))
    return Estimate(
        seconds=seconds,
        ram_bytes=_count_memory(setting, trial, grown),
        disk_bytes=_count_disk(experiment, setting, trial),
        wire_bytes=sum(n * one.wire for n, one in trial.phases),
    )


def _count_seconds(experiment: Experiment, setting: RunContext, trial: Trial) -> float:
    """Counts the seconds of a run on a machine of its own."""
    engine, rounds = setting.engine, experiment.rounds
    asked = len(trial.last.round.asked) or 1  # nobody, where data are pooled
    turns = _count_turns(setting, asked) if trial.last.round.asked else 1.0
    trained = sum(
        n * (_time_clients(setting, asked, turns, one) + one.server_seconds)
        for n, one in trial.phases
    )
    evaluated = _count_evaluated(setting)
    judged = trial.evaluation.server_seconds
    most = ceil(evaluated / engine.workers)
    judged += _time_workers(engine.workers, evaluated, most, trial.evaluation.seconds)
    started = FORK if engine.workers > 1 else 0.0
    if isinstance(engine, Loop) and engine.compiled is not None and trial.programs:
        started += _time_compiling(engine.compiled, trial.programs)
    trained *= count_rounds(experiment) / rounds
    return started + trained + _count_evaluations(experiment) * judged + rounds * COMMIT


def _time_clients(setting: RunContext, asked: int, turns: float, one: TrialRound) -> float:
    """Gives how long the clients of a round take."""
    engine, each = setting.engine, one.seconds / asked
    if isinstance(engine, RayEngine):
        return engine.time_call(asked, each, one.round.down // asked, one.round.up // asked)
    return _time_workers(engine.workers, asked, turns, each)


def _time_workers(workers: int, clients: int, turns: float, each: float) -> float:
    """Gives how long workers take for clients that take so many turns, one after another."""
    if workers == 1:
        return turns * each
    shared = SHARED if workers >= count_cores() else 1.0
    return turns * each * shared + clients * MESSAGE


def _count_turns(setting: RunContext, asked: int) -> float:
    """Counts the clients of average size that the busiest worker of a round has, on average.

    The cohorts are those that the run will have; some of them, where it has many rounds.
    """
    task, federation, workers = setting.task, setting.federation, setting.engine.workers
    steps = [
        steps_per_pass(federation.sizes(i)[0], task.batch_size) for i in range(len(federation))
    ]
    if asked != task.clients_per_round:  # everybody is
        return _spread(steps, workers) / mean(steps)
    cohorts = (
        streams.cohort(task.seed, t, task.clients, asked)
        for t in range(0, task.rounds, ceil(task.rounds / COHORTS))
    )
    return mean(_spread([steps[i] for i in ids], workers) for ids in cohorts) / mean(steps)


def _spread(sizes: Sequence[int], workers: int) -> int:
    """Gives what the busiest worker has, where who is free takes the largest that is left.

    >>> _spread([3, 5, 2, 2], 2)
    7
    """
    loads = [0] * workers
    for size in sorted(sizes, reverse=True):
        heapreplace(loads, loads[0] + size)
    return max(loads)


def _time_compiling(compiled: Compiled, programs: int) -> float:
    """Gives how long it takes to make so many programs."""
    several = UNROLLED if compiled.unroll > 1 else 1.0
    return COMPILER + programs * (PROGRAM + LAYER * compiled.layers * several)


def _count_evaluated(setting: RunContext) -> int:
    return setting.task.clients if setting.evaluated is None else len(setting.evaluated)


def _count_evaluations(experiment: Experiment) -> int:
    every = experiment.eval_every
    return ceil(experiment.rounds / every) if every else 1


def _count_memory(setting: RunContext, trial: Trial, grown: int) -> int:
    """Counts the bytes of all processes, of which each takes what the trial took."""
    engine = setting.engine
    each = LARGER * grown + (COMPILING if trial.programs else 0)
    computing = engine.workers * (PROCESS + each) if engine.workers > 1 else each
    kept = 2 * (trial.last.own + trial.last.round.up)
    return int(computing + kept + _count_evaluated(setting) * trial.evaluation.rows * 100)


def _count_disk(experiment: Experiment, setting: RunContext, trial: Trial) -> int:
    """Counts the bytes of a run's directory.

    What changes in a round is there three times: the database gives pages up one round after
    others took their place. What a round puts on the shelf is taken off at the latest when
    everybody has taken part again.
    """
    clients, rounds, last = setting.task.clients, experiment.rounds, trial.last
    asked = len(last.round.asked) or 1
    seen = clients * (1 - (1 - asked / clients) ** rounds)
    rows = _count_evaluations(experiment) * _count_evaluated(setting) * trial.evaluation.rows
    return int(
        FILES
        + (seen + 2 * asked) * _fill_pages(last.own / asked)
        + 3 * tree.nbytes(last.server)
        + sum(one.shelf for n, one in trial.phases if n == 1)
        + last.shelf * min(rounds, _everybody(clients, asked))
        + rows * ROW * TWICE
    )


def _fill_pages(nbytes: float) -> float:
    """Rounds bytes up to whole pages of the database; nothing takes none."""
    return ceil(nbytes / PAGE) * PAGE


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
            "expected it to fit; lower clients, clients_per_round, workers or the size of the "
            "model, raise eval_every, or set step=eager"
        )
