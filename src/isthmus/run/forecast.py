"""What a run needs, before its first round: nothing is tried out.

Bytes are counted. Seconds are those of a run beside it that differs in its seed alone; where there
is none, a range between a fast and a slow processor, which the rounds themselves narrow down as
they end. A run is refused only where it certainly does not fit. docs/engines.md has the figures.
"""

import shutil
import tomllib
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode

from isthmus import tree
from isthmus.context import RunContext
from isthmus.engines.base import steps_per_pass
from isthmus.errors import IsthmusError
from isthmus.evaluation import splits_of
from isthmus.experiment.settings import Experiment
from isthmus.run.columns import read_seconds
from isthmus.system.files import explain_unwritable
from isthmus.system.machine import free_memory

FAST, SLOW = 2e11, 1e10  # floating-point operations a second, of one process
SHORT, LONG = 2e-5, 2e-3  # seconds of a step beside its operations
STARTED = 60.0  # seconds until a compiler has made every program, at most
POINTS = 11  # of a path, each of which an evaluation may look at
ROW = 80  # bytes of a line in clients.csv, at least
PAGE = 4096  # bytes of the database that belong to one entry
VECTORS = 2  # of all parameters, that a process holds at least: a model and its gradient
BESIDE = 100  # runs that are looked at for one of the same experiment


class RunForecast(NamedTuple):
    """What the rounds that are left need."""

    least_seconds: float
    most_seconds: float
    memory_bytes: int  # of models in training, at least
    disk_bytes: int  # of the states and figures of all rounds
    record: str = ""  # the run that the seconds are from

    @property
    def seconds(self) -> float | None:
        """The seconds, where a record has them."""
        return self.most_seconds if self.record else None


def forecast(experiment: Experiment, setting: RunContext, out: Path, done: int = 0) -> RunForecast:
    """Return what a run in the directory `out` needs after so many rounds."""
    left = experiment.rounds - done
    processes = min(setting.engine.workers, setting.task.clients_per_round)
    memory = VECTORS * processes * setting.task.w0.nbytes
    disk = _count_disk(experiment, setting)
    record = find_record(experiment, out)
    if record is not None:
        name, seconds = record
        return RunForecast(left * seconds, left * seconds, memory, disk, name)
    least, most = _bound_seconds(experiment, setting)
    share = left / experiment.rounds
    return RunForecast(share * least, share * most, memory, disk)


def find_record(experiment: Experiment, out: Path) -> tuple[str, float] | None:
    """Find a run beside `out` of the same experiment with another seed: its name, seconds a round.

    A run that was not evaluated as often, or is of another length, is the same experiment too.
    """
    wanted = _drop_seeds(experiment.table())
    try:
        files = sorted(out.absolute().parent.glob("*/experiment.toml"))[-BESIDE:]
    except OSError:
        return None
    for file in files:
        with suppress(OSError, ValueError, IsthmusError):
            same = _drop_seeds(tomllib.loads(file.read_text(encoding="utf-8"))) == wanted
            if same and (seconds := read_seconds(file.parent)):
                return file.parent.name, sum(seconds) / len(seconds)
    return None


def _drop_seeds(table: dict[str, object]) -> dict[str, object]:
    free = ("seed", "split_seed", "rounds", "eval_every", "engine", "step", "unroll", "block")
    return {key: value for key, value in table.items() if key not in free}


def _bound_seconds(experiment: Experiment, setting: RunContext) -> tuple[float, float]:
    """Return the seconds of all rounds on a fast processor, and on a slow one."""
    task, federation, rounds = setting.task, setting.federation, experiment.rounds
    sizes = [federation.sizes(i) for i in range(len(federation))]
    calls = rounds * task.clients_per_round * setting.method.passes(task) / len(sizes)
    steps = calls * sum(steps_per_pass(train, task.batch_size) for train, *_ in sizes)
    forward = _count_operations(setting)
    trained = calls * sum(train for train, *_ in sizes) * 3 * forward  # and backward
    workers = setting.engine.workers
    least = (trained / FAST + steps * SHORT) / workers
    if "patience" in experiment.method:  # clients that train alone stop by themselves
        least /= rounds
    evaluated = range(len(sizes)) if setting.evaluated is None else setting.evaluated
    models = 2 if setting.method.path() is None else POINTS
    visits = count_evaluations(experiment) * models
    scored = visits * sum(sum(sizes[i][1:]) for i in evaluated) * forward
    most = ((trained + scored) / SLOW + (steps + visits * len(evaluated)) * LONG) / workers
    return least, most + (STARTED if experiment.step == "compiled" else 0.0)


def _count_operations(setting: RunContext) -> int:
    """Count the floating-point operations of one example forward."""
    module, x = setting.task.model.load(setting.task.w0), setting.federation.split(0, "train").x
    # oneDNN runs a whole recurrent layer as one operation, which the counter does not know.
    plain = torch.backends.mkldnn.flags(enabled=False, allow_tf32=None)
    with torch.no_grad(), plain, FlopCounterMode(display=False) as counter:
        module(x[:1])
    return max(int(counter.get_total_flops()), 2 * setting.task.model.size)


def count_evaluations(experiment: Experiment) -> int:
    """Count the rounds after which clients are evaluated."""
    every = experiment.eval_every
    return ceil(experiment.rounds / every) if every else 1


def _count_disk(experiment: Experiment, setting: RunContext) -> int:
    """Count the bytes that are certainly written: states on whole pages, and lines of figures.

    Of the clients' states those of the clients that are drawn are counted, as many as there are on
    average.
    """
    task, evaluated = setting.task, setting.evaluated
    clients, asked = task.clients, task.clients_per_round
    drawn = clients * (1 - (1 - asked / clients) ** experiment.rounds)
    own = tree.nbytes(setting.own_like(0))
    rows = len(splits_of(setting)) * (clients if evaluated is None else len(evaluated))
    return int(
        tree.nbytes(setting.method.init(task))
        + drawn * ceil(own / PAGE) * PAGE
        + count_evaluations(experiment) * rows * ROW
    )


def refuse_what_cannot_fit(needed: RunForecast, out: Path) -> None:
    """Refuse a run that certainly does not fit into memory or on the disk of its directory."""
    place = out.absolute()
    with explain_unwritable(out):
        while not place.exists():
            place = place.parent
        free = shutil.disk_usage(place).free
    _refuse("on disk", needed.disk_bytes, free)
    _refuse("of memory", needed.memory_bytes, free_memory())


def _refuse(what: str, wanted: int, free: int) -> None:
    if wanted > free:
        raise IsthmusError(
            f"the run needs at least {wanted / 1e6:,.0f} MB {what}, and {free / 1e6:,.0f} MB are "
            "free; lower clients, clients_per_round, workers or the size of the model, or raise "
            "eval_every"
        )
