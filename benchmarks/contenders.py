"""Contenders that take turns: our engine, other frameworks and older states of ours.

Those other than our engine have processes of their own.
Each plays one round when it is called, and waits in between.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.environments import VARIABLES, PeerError, find_python
from benchmarks.networks import Settings
from isthmus import Experiment, Federation, streams
from isthmus.context import RunContext
from isthmus.engines.base import Cluster
from isthmus.run.build import build
from isthmus.run.loop import advance
from isthmus.run.store import Memory, Store

CORES = 2  # processes that compute, for everybody
FIRST = 1  # the round in which everybody has the same cohort; ours plays one before
ROOT = Path(__file__).parent.parent
Folder = tempfile.TemporaryDirectory[str]

OLDER = """
import json
import sys
from pathlib import Path
from benchmarks.contenders import Ours, prepare_run
from benchmarks.peers.work import Turns
from benchmarks.works import WORKS, read_data

name, changes, root, rounds, cores = json.loads(sys.argv[1])
experiment = WORKS[name].experiment(**changes)
_, setting = prepare_run(experiment, read_data(experiment, Path(root)), workers=cores)
ours, turns = Ours(setting), Turns(rounds)
for _ in range(rounds):
    turns.wait()
    ours.round()
turns.wait()
ours.close()
"""  # what another checkout runs, with benchmarks of its own


class Contender(Protocol):
    """Plays rounds."""

    def round(self) -> None:
        """Play one round."""

    def close(self) -> None:
        """End what it started."""


def prepare_run(
    experiment: Experiment,
    data: Federation | None = None,
    workers: int | None = None,
    cluster: Cluster | None = None,
) -> tuple[Experiment, RunContext]:
    """Build a run of ours, on data of one's own if they are given."""
    if data is not None:
        given = {name: getattr(experiment, name) for name in Experiment.model_fields}
        experiment = Experiment(**given | {"data": "own", "partition": "own"})
    return build(experiment, data=data, data_root=".", workers=workers, cluster=cluster)


class Ours:
    """Our engine, with its state in memory if no store is given.

    A first round is played at once: its steps may be taken before any are compiled.
    """

    def __init__(self, setting: RunContext, store: Store | None = None):
        self._setting = setting
        self._store = store or Memory(setting)
        self.round()

    def round(self) -> None:
        """Play one round."""
        self._store.commit(advance(self._setting, self._store.progress, evaluate=False))

    def close(self) -> None:
        """End the workers."""
        self._setting.engine.close()


class Peer:
    """Somebody else in a process of their own: a line in starts a round."""

    def __init__(self, name: str, command: Sequence[str], folder: Folder, **settings: Any):
        self._name = name
        self._folder = folder
        self._log = Path(folder.name) / "log.txt"
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log.open("w"),
            text=True,
            **settings,
        )
        self._wait()

    def round(self) -> None:
        """Play one round."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # waiting raises what the log says
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        self._wait()

    def _wait(self) -> None:
        """Wait until it is ready for the next round."""
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            lines = self._log.read_text().splitlines()
            self.close()
            raise PeerError(f"{self._name} ended early: {' / '.join(lines[-5:]) or 'in silence'}")

    def close(self) -> None:
        """End the process; its own ones end with it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait()
        self._folder.cleanup()


def start_framework(name: str, setting: RunContext, network: str, rounds: int) -> Peer:
    """Start another framework in its own environment.

    It gets the work as files in a folder: see `benchmarks.peers.work`.
    """
    folder = Folder(prefix=f"{name}-")
    write_work(setting, network, rounds, Path(folder.name))
    command = [find_python(name), "-m", f"benchmarks.peers.{name}", folder.name]
    return Peer(name, command, folder, cwd=ROOT, env=os.environ | VARIABLES)


def start_checkout(
    checkout: Path, work: str, root: Path, rounds: int, changes: Mapping[str, Any]
) -> Peer:
    """Start our engine as it is in another checkout of isthmus, on a work that it knows too."""
    given = json.dumps([work, dict(changes), str(root.absolute()), rounds, CORES])
    command = [sys.executable, "-c", OLDER, given]
    paths = os.pathsep.join([str(checkout.absolute() / "src"), str(checkout.absolute())])
    return Peer(
        str(checkout), command, Folder(), cwd=checkout, env=os.environ | {"PYTHONPATH": paths}
    )


def write_work(setting: RunContext, network: str, rounds: int, folder: Path) -> None:
    """Write a work down for a process without isthmus."""
    task, federation = setting.task, setting.federation
    clients = [federation.split(i, "train") for i in range(len(federation))]
    np.save(folder / "x.npy", np.concatenate([x.numpy() for x, _ in clients]))
    np.save(folder / "y.npy", np.concatenate([y.numpy() for _, y in clients]))
    np.save(folder / "ends.npy", np.cumsum([len(y) for _, y in clients]))
    np.save(folder / "start.npy", task.w0.numpy())
    sgd = Settings(task.epochs, task.batch_size, task.lr_at(0), task.momentum, task.weight_decay)
    cohorts = [
        [int(i) for i in streams.cohort(task.seed, t, task.clients, task.clients_per_round)]
        for t in range(FIRST, FIRST + rounds)
    ]
    work = {"network": network, "cohorts": cohorts, "sgd": sgd, "processes": CORES}
    (folder / "work.json").write_text(json.dumps(work))
