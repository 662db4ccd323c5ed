"""Compares the engines: `python -m benchmarks engines --rounds 5`.

On synthetic data of the shape of MNIST (100 clients, 432 training examples each, TwoNN, five
clients a round, ten epochs of batches of ten) it times rounds of FedAvg and of SuPerFed-MM while it
mixes, in `loop` and in `stacked`, taking turns round by round, and prints medians and their ratios
to FedAvg in `loop`. Seconds hold for the machine that ran it; ratios travel better.
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
from isthmus.run.loop import advance
from isthmus.run.store import Memory

WORKS = {"fedavg": "fedavg", "superfed-mm, mixing": {"name": "superfed-mm", "start": 0.0}}


def prepare_setting(method: object, engine: str) -> RunContext:
    """Prepare one of the runs that take turns."""
    data = {"name": "synthetic", "samples": 60_000, "features": 784}
    experiment = Experiment(method=method, data=data, clients=100, model="twonn", engine=engine)
    return prepare_run(experiment)[1]


def main(arguments: Sequence[str]) -> None:
    """Time the rounds and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks engines", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args(arguments).rounds
    keys = [(work, engine) for work in WORKS for engine in ("loop", "stacked")]
    settings = {key: prepare_setting(WORKS[key[0]], key[1]) for key in keys}
    stores = {key: Memory(settings[key]) for key in keys}
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in keys}
    for number in range(rounds + 2):
        for key in keys:
            step = advance(settings[key], stores[key].progress, evaluate=False)
            stores[key].commit(step)
            if number > 1:  # two rounds warm up: in the second, steps are compiled
                seconds[key].append(step.cost.train_seconds)
    reference = median(seconds["fedavg", "loop"])
    table = Table("work", "engine", "seconds a round", "ratio", box=None)
    for work, engine in keys:
        middle = median(seconds[work, engine])
        table.add_row(work, engine, f"{middle:.2f}", f"{middle / reference:.2f}")
    print(f"{platform.machine()}, torch {torch.__version__}, one thread, {rounds} rounds each")
    Console().print(table)
