"""Measures what a model per client costs: `python -m benchmarks.absentees --clients 1000 10000`.

FedSimSup's server has a model for every client: TwoNN (199,210 parameters), beside a supervisor of
about a sixth of it. Ten clients take part in a round, for one epoch of batches of ten on their 44
of 60,000 synthetic examples of the shape of MNIST. The run is on disk. A round is training, commit
and reading the state back; after the last one the models of clients that missed all of them are
made. Each number of clients has a process of its own, one after the other.
"""

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.contenders import prepare_run
from benchmarks.scale import make_federation, measure_seconds
from isthmus import Experiment, tree
from isthmus.cohort import Clients, Round
from isthmus.run.loop import advance
from isthmus.run.store import Store
from isthmus.shelf import Shelf

METHOD = {"name": "fedsimsup", "supervisors": ["mlp hidden=42"]}
LOOKED_AT = 200  # absentees


def play(clients: int, rounds: int, folder: Path) -> dict[str, float]:
    """Play some rounds and give figures."""
    torch.set_num_threads(1)
    wanted = Experiment(
        method=METHOD, model="twonn", rounds=rounds, clients_per_round=10, epochs=1, data="own"
    )
    experiment, setting = prepare_run(wanted, make_federation(clients))
    store = Store(folder / "run", setting, experiment.toml()).start()
    seconds, commits, written = [], [], []
    for _ in range(rounds):
        began = time.perf_counter()
        step = advance(setting, store.progress, evaluate=False)
        commit, _ = measure_seconds(lambda step=step: store.commit(step))  # type: ignore[misc]
        seconds.append(time.perf_counter() - began)
        commits.append(commit)
        put = [tensor for tensor in step.shelf.values() if tensor is not None]
        written.append(tree.nbytes((tuple(put), tuple(step.changed.values()), step.server)))
    progress = store.progress
    absent = (progress.server.last < 0).nonzero()[:LOOKED_AT, 0].tolist()
    cohort = Clients(absent, Round(setting, rounds, progress.own, shelf=Shelf(progress.shelf)))
    model = setting.method.absentees(setting.task).models(progress.server, cohort)
    made, _ = measure_seconds(lambda: [model(i).sum() for i in absent])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    closed, _ = measure_seconds(lambda: store.close("stopped"))
    return {
        "all models, MB": clients * setting.task.w0.nbytes / 1e6,
        "first round, with the census, seconds": seconds[0],
        "a round, seconds (median)": median(seconds[1:]),
        "of which the commit, seconds (median)": median(commits[1:]),
        "written in the first round, MB": written[0] / 1e6,
        "written in a round, MB (median)": median(written[1:]) / 1e6,
        "an absentee's model, milliseconds": 1000 * made / len(absent),
        "peak memory, MB": peak / 1e6,
        "disk, MB": sum(path.stat().st_size for path in (folder / "run").iterdir()) / 1e6,
        "close, seconds": closed,
    }


def main() -> None:
    """Play with each number of clients, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.into:
        print(json.dumps(play(wanted.clients[0], wanted.rounds, wanted.into)))
        return
    columns: dict[int, dict[str, float]] = {}
    for clients in wanted.clients:
        with tempfile.TemporaryDirectory() as folder:
            arguments = ["--clients", str(clients), "--rounds", str(wanted.rounds)]
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.absentees", *arguments, "--into", folder],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
        columns[clients] = json.loads(done.stdout)
    table = Table("", *(f"{clients:,} clients" for clients in columns), box=None)
    for name in columns[wanted.clients[0]]:
        table.add_row(name, *(f"{column[name]:.4g}" for column in columns.values()))
    print(f"{platform.machine()}, torch {torch.__version__}, {wanted.rounds} rounds each")
    Console().print(table)


if __name__ == "__main__":
    main()
