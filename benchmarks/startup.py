"""Measures how long one waits for something to see: `python -m benchmarks speed startup`.

`isthmus --help`, and W1 by the command line: from the command to the record of its first round. The
run is 60 rounds long, so that its steps are worth compiling; it is stopped after the first.
"""

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.results import Result
from benchmarks.works import EVERYWHERE, WORKS, is_real

WORK = "W1"
ISTHMUS = (sys.executable, "-m", "isthmus")
NOISE = ("--data", "synthetic", "--set", "samples=60000", "--set", "features=784")


def measure(root: Path, rounds: int) -> Result:
    """Time `--help` and a first round as often as `rounds` says, and once more to warm up."""
    help_seconds, round_seconds = [], []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        subprocess.run([*ISTHMUS, "--help"], check=True, stdout=subprocess.DEVNULL)
        help_seconds.append(time.perf_counter() - began)
        with tempfile.TemporaryDirectory() as folder:
            round_seconds.append(time_first_round(root, Path(folder, "run")))
    figures = {
        "seconds until isthmus --help has ended": median(help_seconds[1:]),
        "seconds until the first round is over": median(round_seconds[1:]),
    }
    return Result(f"{WORK} by the command line", {}, figures)


def time_first_round(root: Path, run: Path) -> float:
    """Time a run until its first round is written down."""
    real = is_real(WORKS[WORK].experiment(), root)
    data = ("--data", "mnist", "--data-root", str(root.resolve())) if real else NOISE
    sets = [f"--set={name}={EVERYWHERE[name]}" for name in ("test", "validation", "lr_decay")]
    length = ("--rounds", "60", "--set", "eval_every=0", "--out", str(run))
    began = time.perf_counter()
    process = subprocess.Popen(
        [*ISTHMUS, "run", "--method", "fedavg", *data, *sets, *length],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    while not _count_rounds(run):
        if process.poll() is not None:
            raise RuntimeError(f"the run ended early: {process.communicate()[1].decode()}")
        time.sleep(0.01)
    took = time.perf_counter() - began
    process.send_signal(signal.SIGINT)
    process.communicate()
    return took


def _count_rounds(run: Path) -> int:
    records = run / "rounds.csv"
    if not records.is_file():
        return 0
    return sum(line[:1].isdigit() for line in records.read_text().splitlines())
