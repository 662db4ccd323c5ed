"""Holds estimates of time against runs: `python -m benchmarks estimates --data-root DIR`.

Experiments behind published numbers are cut to a few rounds, estimated, and run in one process,
with compiled steps and without. Both sides are processor seconds, so that other programs do not
count. What compiling takes is left out: a round in which a program was made counts as much as the
next one. docs/engines.md has the results.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from isthmus import Experiment
from isthmus.comparison.grid import change
from isthmus.engines.loop import Loop
from isthmus.reproduction.recipe import find_recipe
from isthmus.storage.store import Memory
from isthmus.training.build import Built, build
from isthmus.training.estimate import estimate
from isthmus.training.federate import train

MNIST = ("superfed/table1", "MNIST, 100")
SUPERFED = ("superfed/table1", "CIFAR10, 100")
FLOCO = ("floco/table1", "CIFAR10, SimpleCNN, 5-Fold")
FEDSIMSUP = ("fedsimsup/table2", "CIFAR10, n=100, Dir(0.1)")


class EstimatedRun(NamedTuple):
    """A run of a recipe, cut short."""

    recipe: str
    column: str
    method: str
    step: str
    changes: list[str]


RUNS = [
    *(
        EstimatedRun(*MNIST, method, step, ["rounds=5", "eval_every=5"])
        for method in ("fedavg", "superfed-mm", "fedrep", "ditto")
        for step in ("compiled", "eager")
        if step == "compiled" or method in ("fedavg", "fedrep")
    ),
    *(
        EstimatedRun(*FEDSIMSUP, method, "compiled", ["rounds=4", "eval_every=4"])
        for method in ("fedavg", "fedsimsup", "fedas")
    ),
    *(
        EstimatedRun(*FLOCO, method, "compiled", ["rounds=4", "eval_every=4", "epochs=1", *own])
        for method, own in (("fedavg", []), ("floco", ["tau=2"]))
    ),
    *(
        EstimatedRun(*SUPERFED, method, "compiled", ["rounds=5", "eval_every=5", "epochs=1"])
        for method in ("fedavg", "superfed-mm")
    ),
]


def measure(built: Built) -> float:
    """Runs it; gives the processor seconds without those of compiling."""
    engine = built.setting.engine
    compiled = engine.compiled if isinstance(engine, Loop) else None
    seconds: list[float] = []
    made: list[int] = []
    began = time.process_time()

    def watch(_: object) -> None:
        nonlocal began
        seconds.append(time.process_time() - began)
        made.append(0 if compiled is None else compiled.programs)
        began = time.process_time()

    train(built, Memory(built.setting), watch)
    for t in reversed(range(len(seconds) - 1)):
        if made[t] > (made[t - 1] if t else 0):
            seconds[t] = min(seconds[t], seconds[t + 1])
    return sum(seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints estimates beside truth."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks estimates", description=__doc__)
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--only", default="", help="runs whose words contain this")
    wanted = parser.parse_args(arguments)
    table = Table("run", "steps", "estimated s", "true s", "estimated / true")
    local = Experiment(method="local", data="digits", rounds=200, step="eager")
    runs = [("digits, local", local)] + [
        (
            f"{run.recipe}, {run.column}, {run.method}",
            change(
                find_recipe(run.recipe).choose([run.column], [run.method])[0].experiment(1),
                [*run.changes, f"step={run.step}"],
            ),
        )
        for run in RUNS
    ]
    for name, experiment in runs:
        if wanted.only in name:
            built = build(experiment, data_root=wanted.data_root, workers=1)
            began = time.process_time()
            needed = estimate(*built)
            print(f"{name}: estimated in {time.process_time() - began:.1f} s", flush=True)
            assert needed is not None
            truth = measure(built)
            ratio = needed.seconds / truth
            row = (name, experiment.step, *(f"{x:.2f}" for x in (needed.seconds, truth, ratio)))
            print(*row, sep=" | ", flush=True)
            table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
