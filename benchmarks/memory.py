"""Measures how much memory W2s takes over all processes: `python -m benchmarks speed memory`.

A fresh process plays the rounds, with its state on disk as a run has it; meanwhile the proportional
set sizes of it and of all processes that it started are added up, several times a second, where the
system has /proc.
"""

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from benchmarks.contenders import CORES, ROOT, Ours, prepare_run
from benchmarks.results import Result
from benchmarks.works import WORKS, read_data
from isthmus.run.store import Store

WORK = "W2s"
EVERY = 0.2  # seconds


def measure(root: Path, rounds: int) -> Result:
    """Measure the peak of each round."""
    if not Path("/proc/self/smaps_rollup").is_file():
        return Result("memory", {}, {}, ["memory: not measured, the system has no /proc"])
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.memory", str(root), str(rounds + 1)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    peaks, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(EVERY):
            peaks[-1] = max(peaks[-1], add_up(process.pid))

    watch = threading.Thread(target=look)
    watch.start()
    for _ in process.stdout:
        peaks.append(0)
    ended.set()
    watch.join()
    if process.wait():
        return Result("memory", {}, {}, ["memory: not measured, the process failed"])
    first, *played = peaks[: rounds + 1]
    figures = {
        "peak memory over all processes, GB": max(first, *played) / 1e9,
        "peak of the last round / of the second": played[-1] / played[0],
    }
    return Result(f"peak memory of {WORK}, {CORES} workers", {}, figures)


def add_up(process: int) -> int:
    """Add up the bytes of a process and of all that it started; shared pages count once."""
    total, place = 0, Path(f"/proc/{process}")
    try:
        lines = (place / "smaps_rollup").read_text().splitlines()
        total = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
        for task in (place / "task").iterdir():
            total += sum(add_up(int(child)) for child in (task / "children").read_text().split())
    except OSError:  # it has ended meanwhile
        pass
    return total


def play(root: Path, rounds: int) -> None:
    """Play rounds, and say when each has ended."""
    experiment = WORKS[WORK].experiment()
    _, setting = prepare_run(experiment, read_data(experiment, root), workers=CORES)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder, "run"), setting, experiment.toml()).start()
        ours = Ours(setting, store)
        for number in range(rounds):
            ours.round()
            print(number, flush=True)
        ours.close()
        store.close("stopped")


if __name__ == "__main__":
    play(Path(sys.argv[1]), int(sys.argv[2]))
