"""Compares block sizes and `loop`: `python -m benchmarks blocks --hidden 16 64 --cohort 10 50`.

On synthetic data of the shape of the digits (100 clients, 54 training examples each, batches of
ten) it times rounds of FedAvg with networks of one hidden layer, in `loop` on all cores with steps
that are not compiled, and in `stacked` with blocks of several sizes, taking turns round by round.
It prints the median seconds a round. `engine = "auto"` and `block = 0` rest on its results.
"""

import argparse
import platform
from collections.abc import Sequence
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.contenders import prepare_run
from isthmus import Experiment
from isthmus.context import RunContext
from isthmus.engines.base import one_thread
from isthmus.run.loop import advance
from isthmus.run.store import Memory

BLOCKS = (4, 16, 32, 64)


def prepare_setting(hidden: int, cohort: int, block: int | None) -> RunContext:
    """Prepare one of the runs that take turns; `loop` if no block is given."""
    experiment = Experiment(
        method="fedavg",
        data={"name": "synthetic", "samples": 7_500, "features": 64, "classes": 10},
        clients=100,
        model={"name": "mlp", "hidden": hidden},
        clients_per_round=cohort,
        epochs=5,
        step="eager",
        **({"engine": "loop"} if block is None else {"engine": "stacked", "block": block}),
    )
    return prepare_run(experiment)[1]


def time_rounds(settings: Sequence[RunContext], rounds: int) -> list[float]:
    """Return the median seconds of a round of each, after one round to warm up."""
    stores = [Memory(each) for each in settings]
    taken: list[list[float]] = [[] for _ in settings]
    with one_thread():
        for number in range(rounds + 1):
            for each, store, times in zip(settings, stores, taken, strict=True):
                step = advance(each, store.progress, evaluate=False)
                store.commit(step)
                if number:
                    times.append(step.cost.train_seconds)
    for each in settings:
        each.engine.close()
    return [median(times) for times in taken]


def main(arguments: Sequence[str]) -> None:
    """Time the rounds and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks blocks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hidden", type=int, nargs="+", default=[16, 64, 200])
    parser.add_argument("--cohort", type=int, nargs="+", default=[10, 50, 100])
    wanted = parser.parse_args(arguments)
    columns = ["loop", *(f"block {block}" for block in BLOCKS)]
    table = Table("hidden", "parameters", "clients a round", *columns, box=None)
    for hidden in wanted.hidden:
        for cohort in wanted.cohort:
            settings = [prepare_setting(hidden, cohort, block) for block in (None, *BLOCKS)]
            medians = time_rounds(settings, wanted.rounds)
            size = settings[0].task.model.size
            row = [str(hidden), f"{size:,}", str(cohort), *(f"{each:.3f}" for each in medians)]
            table.add_row(*row)
    print(f"{platform.machine()}, torch {torch.__version__}, {wanted.rounds} rounds each")
    Console().print(table)
