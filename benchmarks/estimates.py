"""Holds estimates against what comes out: `python -m benchmarks estimates --data-root DIR`.

Runs of ten kinds and more, each in a process of its own, as `isthmus run` does them: seconds by the
clock, compiling included; memory over all processes above what the program and the data take
before; bytes on disk in the end; bytes between clients and server. A ratio of 1 is a true estimate,
above 1 it said too much. docs/engines.md has the results.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.contenders import ROOT
from benchmarks.memory import EVERY, add_up
from benchmarks.works import WORKS
from isthmus import Experiment, federate
from isthmus.run.build import build
from isthmus.run.forecast import estimate

_DIGITS = {"data": "digits", "clients": 20}
_TINY = {**_DIGITS, "clients": 100, "clients_per_round": 60, "model": {"name": "mlp", "hidden": 16}}

RUNS = MappingProxyType(
    {
        "digits, FedAvg, plain steps": {**_DIGITS, "method": "fedavg", "rounds": 60},
        "digits, SuPerFed-MM, compiled": {**_DIGITS, "method": "superfed-mm", "rounds": 150},
        "digits, training alone": {**_DIGITS, "method": "local", "rounds": 200},
        "digits, Ditto, stacked": {**_TINY, "method": "ditto", "engine": "stacked", "rounds": 80},
        "digits, FedSimSup, evaluated in every round": {
            **_DIGITS,
            "method": "fedsimsup",
            "rounds": 40,
            "eval_every": 1,
        },
        "MNIST, TwoNN, FedAvg, compiled": {"work": "W1", "rounds": 80, "eval_every": 20},
        "MNIST, TwoNN, SuPerFed-MM, compiled": {
            "work": "W1s",
            "rounds": 50,
            "eval_every": 25,
            "validation": 0.1,  # to choose points of paths by
        },
        "MNIST, TwoNN, FedRep, plain steps": {
            "work": "W1",
            "method": "fedrep",
            "rounds": 12,
            "eval_every": 6,
            "step": "eager",
        },
        "CIFAR-10, CNN, FedAvg": {"work": "W2", "rounds": 3, "epochs": 3, "eval_every": 3},
        "CIFAR-10, SimpleCNN, FLOCO": {"work": "W3", "rounds": 4, "eval_every": 2, "epochs": 2},
        "CIFAR-10, LeNet-5, FedSimSup": {"work": "W4", "rounds": 20, "eval_every": 10},
        "Shakespeare, LSTM, FedAvg, 50 roles evaluated": {
            "work": "W5",
            "rounds": 2,
            "eval_every": 2,
            "eval_sample": 50,
        },
    }
)


class Needs(NamedTuple):
    """What a run needs, or needed: seconds, and bytes."""

    seconds: float
    memory: float
    disk: float
    wire: float


def make_experiment(settings: Mapping[str, Any]) -> Experiment:
    """Makes the experiment of a run, perhaps a work of the other benchmarks that is cut short."""
    changes = {name: value for name, value in settings.items() if name != "work"}
    return (
        WORKS[settings["work"]].experiment(**changes)
        if "work" in settings
        else Experiment(**changes)
    )


def play(name: str, root: Path, out: Path) -> None:
    """Estimates a run, then runs it, and says what it needed; in a fresh process.

    It waits for a line before either, so that somebody may look at its memory.
    """
    experiment = make_experiment(RUNS[name])
    built = build(experiment, data_root=root)
    print("built", flush=True)
    sys.stdin.readline()
    needed = estimate(*built)
    built.setting.engine.close()
    assert needed is not None, f"{name} diverges"
    told = Needs(needed.seconds, needed.ram_bytes, needed.disk_bytes, needed.wire_bytes)
    print(json.dumps(told), flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    run = federate(experiment, out=out, data_root=root)
    seconds = time.perf_counter() - began
    wire = sum(done.cost.down_bytes + done.cost.up_bytes for done in run.rounds)
    disk = sum(512 * path.stat().st_blocks for path in out.rglob("*") if path.is_file())
    print(json.dumps(Needs(seconds, 0, disk, wire)), flush=True)


def measure(name: str, root: Path) -> tuple[Needs, Needs]:
    """Gives what was estimated, and what came out."""
    with tempfile.TemporaryDirectory() as folder:
        given = ["--play", name, "--data-root", str(root.absolute()), "--out", f"{folder}/run"]
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.estimates", *given],
            cwd=ROOT,
            env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/programs"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        before = peak = add_up(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        told = Needs(*json.loads(process.stdout.readline()))
        ended = threading.Event()

        def look() -> None:
            nonlocal peak
            while not ended.wait(EVERY):
                peak = max(peak, add_up(process.pid))

        watch = threading.Thread(target=look)
        watch.start()
        process.stdin.write("\n")
        process.stdin.flush()
        came = Needs(*json.loads(process.stdout.readline()))
        ended.set()
        watch.join()
        process.stdin.close()
        process.wait()
    return told, came._replace(memory=peak - before)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints estimates beside outcomes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks estimates", description=__doc__)
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--only", default="", help="runs whose names contain this")
    parser.add_argument("--play", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    wanted = parser.parse_args(arguments)
    if wanted.play:
        play(wanted.play, wanted.data_root, wanted.out)
        return
    table = Table("run", *(f"{what}, said / came" for what in ("s", "memory", "disk", "wire")))
    for name in RUNS:
        if wanted.only in name:
            told, came = measure(name, wanted.data_root)
            cells = [f"{told.seconds:.1f} / {came.seconds:.1f}"]
            pairs = zip(told[1:], came[1:], strict=True)
            cells += [f"{ours / 1e6:.1f} / {true / 1e6:.1f} MB" for ours, true in pairs]
            print(name, *cells, sep=" | ", flush=True)
            table.add_row(name, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
