"""Times rounds with many clients: `python -m benchmarks.scale --clients 1000 100000`.

SuPerFed-MM mixes from the first round on, or FedAvg trains, with TwoNN (199,210 parameters), five
clients a round, ten epochs of batches of ten. A client's 60 examples are drawn, when they are
looked at, from its own stream out of 60,000 synthetic ones of the shape of MNIST, so that clients
cost nothing by themselves. Each number of clients has a process of its own, which writes to disk as
any run does; they take turns round by round, so that only one computes at a time and both see the
same machine.

A round is training, commit and reading the state back. Evaluation visits all clients and is linear
in their number: after one more round it is timed, with the writing of its records and with reading
them for the table that a run ends with, where there are at most `--evaluate` clients.
"""

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.contenders import prepare_run
from isthmus import Experiment, Federation, streams
from isthmus.context import RunContext
from isthmus.data.arrays import Arrays
from isthmus.data.federation import Splits
from isthmus.report.tables import summary
from isthmus.run import record as reader
from isthmus.run.database import Database
from isthmus.run.loop import advance
from isthmus.run.store import STATE, Store

POOL, FEATURES, CLASSES = 60_000, 784, 10
TRAIN, VALIDATION, TEST = 44, 4, 12  # of 60


class DrawnSplits(Sequence[Splits]):
    """The parts of N clients, drawn when they are looked at."""

    def __init__(self, clients: int):
        self._clients = clients

    def __len__(self) -> int:
        return self._clients

    def __getitem__(self, i: Any) -> Any:
        if not 0 <= i < self._clients:
            raise IndexError(i)
        rows = streams.stream(0, "rows", i).choice(POOL, TRAIN + VALIDATION + TEST, replace=False)
        train, validation, test = np.split(rows, [TRAIN, TRAIN + VALIDATION])
        return Splits(np.sort(train), np.sort(validation), np.sort(test))


def make_federation(clients: int) -> Federation:
    """Make many clients of one pool."""
    rng = np.random.default_rng(0)
    x = rng.integers(256, size=(POOL, FEATURES), dtype=np.uint8)
    y = rng.integers(CLASSES, size=POOL)
    arrays = Arrays(x, y, x[:0], y[:0], CLASSES, scale=255.0)
    return Federation(arrays, DrawnSplits(clients), {"test": 0.2, "validation": 0.1})


def measure_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of some work, and what it gave."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def write_figures(**figures: float) -> None:
    """Write figures for the process that started this one."""
    print(json.dumps(figures), flush=True)


def serve(wanted: argparse.Namespace) -> None:
    """Play one round whenever a line comes in, and write what it took."""
    (clients,), rounds, folder = wanted.clients, wanted.rounds + 1, wanted.serve
    data = make_federation(clients)
    method = {"name": "superfed-mm", "start": 0.0} if wanted.method == "superfed-mm" else "fedavg"
    stated = Experiment(method=method, model="twonn", rounds=rounds + 1, eval_every=0, data="own")
    digest, _ = measure_seconds(data.digest)
    prepared, (experiment, setting) = measure_seconds(
        lambda: prepare_run(stated, data, wanted.workers)
    )
    created, store = measure_seconds(
        lambda: Store(folder / "run", setting, experiment.toml()).start()
    )
    cohort, _ = measure_seconds(lambda: streams.cohort(0, 0, clients, 5))
    write_figures(digest=digest, prepare=prepared, create=created, cohort=cohort)
    torch.set_num_threads(1)
    progress = store.progress
    for _ in sys.stdin:
        if progress.t == rounds:
            break
        began = time.perf_counter()
        step = advance(setting, progress, evaluate=False)
        trained = time.perf_counter()
        store.commit(step)
        committed = time.perf_counter()
        progress = store.progress
        write_figures(round=time.perf_counter() - began, commit=committed - trained)
    peak = find_peak()
    closed, _ = measure_seconds(lambda: store.close("stopped"))
    disk = sum(path.stat().st_size for path in (folder / "run").iterdir())
    opened, database = measure_seconds(lambda: Database(folder / "run" / STATE))
    database.close()
    figures = {}
    if clients <= wanted.evaluate:
        figures = measure_evaluation(setting, experiment, folder / "run")
    write_figures(peak=peak, close=closed, disk=disk, open=opened, **figures)


def measure_evaluation(setting: RunContext, experiment: Experiment, path: Path) -> dict[str, float]:
    """Play one more round, evaluate all clients after it, write the records and read them."""
    store = Store(path, setting, experiment.toml(), Database(path / STATE))
    store.start()
    began = time.process_time()
    step = advance(setting, store.progress, evaluate=True)
    processor = time.process_time() - began
    evaluated = find_peak()
    written, _ = measure_seconds(lambda: store.commit(step))
    committed = find_peak()
    store.close("finished")
    read, _ = measure_seconds(lambda: summary.summarize([reader.read(path)]))
    return {
        "evaluate": step.cost.evaluate_seconds,
        "evaluate_each": 1000 * step.cost.evaluate_seconds / setting.task.clients,
        "processor_each": 1000 * processor / setting.task.clients,  # of this process alone
        "evaluate_peak": evaluated,
        "write": written,
        "write_peak": committed,
        "read": read,
        "read_peak": find_peak(),
        "records": sum(path.stat().st_size for path in path.glob("*.csv")),
    }


def find_peak() -> float:
    """Return the most bytes of memory that this process held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def play_round(process: subprocess.Popen[str]) -> dict[str, float]:
    """Has a process play its next round, or give its last figures."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return read_figures(process)


def read_figures(process: subprocess.Popen[str]) -> dict[str, float]:
    """Read the next figures of a process."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit("scale: a process ended early")
    figures: dict[str, float] = json.loads(line)
    return figures


def main() -> None:
    """Let the numbers of clients take turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 100_000])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--evaluate", type=int, default=1000, metavar="N", help="clients, at most")
    parser.add_argument("--method", choices=["superfed-mm", "fedavg"], default="superfed-mm")
    parser.add_argument("--workers", type=int, help="processes that compute, one per core")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.serve:
        serve(wanted)
        return
    with tempfile.TemporaryDirectory() as folder:
        processes, starts = {}, {}
        for clients in wanted.clients:
            place = Path(folder, str(clients))
            place.mkdir()
            arguments = ["--clients", str(clients), "--rounds", str(wanted.rounds)]
            arguments += ["--evaluate", str(wanted.evaluate), "--method", wanted.method]
            arguments += ["--workers", str(wanted.workers)] if wanted.workers else []
            processes[clients] = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.scale", *arguments, "--serve", str(place)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            starts[clients] = read_figures(processes[clients])
        rounds: dict[int, list[dict[str, float]]] = {clients: [] for clients in processes}
        for number in range(wanted.rounds + 1):
            for clients, process in processes.items():
                figures = play_round(process)
                if number:  # the first round warms up
                    rounds[clients].append(figures)
        ends = {clients: play_round(process) for clients, process in processes.items()}
        for process in processes.values():
            process.communicate()
    show(starts, rounds, ends)


def show(
    starts: dict[int, dict[str, float]],
    rounds: dict[int, list[dict[str, float]]],
    ends: dict[int, dict[str, float]],
) -> None:
    """Print one column per number of clients, and the ratio of the last to the first."""
    columns = {
        clients: {
            "round, seconds (median)": median(figures["round"] for figures in rounds[clients]),
            "commit, seconds (median)": median(figures["commit"] for figures in rounds[clients]),
            "cohort, seconds": starts[clients]["cohort"],
            "peak memory, MB": ends[clients]["peak"] / 1e6,
            "disk, MB": ends[clients]["disk"] / 1e6,
            "digest of the data, seconds": starts[clients]["digest"],
            "prepare, seconds": starts[clients]["prepare"],
            "begin a run, seconds": starts[clients]["create"],
            "close, seconds": ends[clients]["close"],
            "open the state, seconds": ends[clients]["open"],
            "evaluate all, seconds": ends[clients].get("evaluate", 0.0),
            "a client, milliseconds": ends[clients].get("evaluate_each", 0.0),
            "a client, processor, milliseconds": ends[clients].get("processor_each", 0.0),
            "write its records, seconds": ends[clients].get("write", 0.0),
            "read them, seconds": ends[clients].get("read", 0.0),
            "tables, MB": ends[clients].get("records", 0.0) / 1e6,
            "peak memory, evaluated, MB": ends[clients].get("evaluate_peak", 0.0) / 1e6,
            "peak memory, written, MB": ends[clients].get("write_peak", 0.0) / 1e6,
            "peak memory, read, MB": ends[clients].get("read_peak", 0.0) / 1e6,
        }
        for clients in starts
    }
    table = Table("", *(f"{clients:,} clients" for clients in columns), "ratio", box=None)
    first, *_, last = [*columns, *columns]
    for name, value in columns[first].items():
        values = [f"{column[name]:.4g}" if column[name] else "–" for column in columns.values()]
        ratio = f"{columns[last][name] / value:.2f}" if value and columns[last][name] else "–"
        table.add_row(name, *values, ratio)
    print(f"{platform.machine()}, torch {torch.__version__}, {len(rounds[first])} rounds each")
    Console().print(table)


if __name__ == "__main__":
    main()
