"""A small federation of unequal clients, and the pieces of a run on it."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from isthmus import Experiment, Federation
from isthmus.context import Engine, RunContext
from isthmus.run import loop as federate
from isthmus.run.build import build as build_run
from isthmus.run.store import Memory, Progress, RoundUpdate, apply_update

FEATURES, CLASSES = 6, 3
WIDTH = 8  # features that enter the head
SIZES = (9, 40, 23, 31, 14, 20)  # unequal, so that batches and passes are ragged


def federation(sizes: tuple[int, ...] = SIZES, seed: int = 5, spread: float = 0.4) -> Federation:
    """Separable clouds, of which each client prefers one class."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    y = rng.integers(CLASSES, size=len(owner))
    y = np.where(rng.random(len(owner)) < 0.5, owner % CLASSES, y)
    centres = 1.5 * rng.standard_normal((CLASSES, FEATURES))
    x = (centres[y] + spread * rng.standard_normal((len(y), FEATURES))).astype(np.float32)
    server = (x[::3], y[::3])
    return Federation.of(x, y, owner, validation=0.15, seed=1, server_test=server)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES))


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table, without the help of isthmus."""
    lines = path.read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def fitting(method: str) -> str | dict[str, Any]:
    """A method by name, with networks that take vectors where its own ones want images."""
    if method != "fedsimsup-tcl":
        return method
    supervisors = ["mlp hidden=3", "twonn hidden=4", "mlp hidden=5"]
    return {"name": method, "supervisors": supervisors, "supervisor_seed": 1}


def setting(
    method: str | dict[str, Any],
    engine: Engine | None = None,
    data: Federation | None = None,
    build: Callable[[], nn.Module] = network,
    **changes: Any,
) -> RunContext:
    """Assembles a run of few rounds; `engine` replaces the experiment's."""
    data = data or federation()
    given: dict[str, Any] = {
        "method": fitting(method) if isinstance(method, str) else method,
        "data": "own",
        "clients": len(data),
        "model": "own",
        "rounds": 4,
        "clients_per_round": min(4, len(data)),
        "epochs": 2,
        "batch_size": 8,
        "lr": 0.1,
        "seed": 3,
        "engine": "loop",
    }
    made = build_run(Experiment(**(given | changes)), data=data, model=build, workers=1).setting
    return made if engine is None else made._replace(engine=engine)


def begin(setting: RunContext) -> Progress:
    """Gives the state before the first round."""
    return Memory(setting).progress


def advance(
    setting: RunContext, progress: Progress, evaluate: bool
) -> tuple[Progress, RoundUpdate]:
    """Plays one round and gives the state after it."""
    step = federate.advance(setting, progress, evaluate)
    return apply_update(progress, step), step


def played(setting: RunContext, count: int, progress: Progress | None = None) -> Progress:
    """Plays some rounds without evaluation."""
    progress = progress or begin(setting)
    for _ in range(count):
        progress, _ = advance(setting, progress, evaluate=False)
    return progress
