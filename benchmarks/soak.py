"""Kills runs at random instants and resumes them: `python -m benchmarks.soak --kills 100`.

Every run is a process that is killed with SIGKILL several times, resumed each time, and at last
left to finish. Its digest and its tables must then be those of the same experiment in one piece; of
rounds.csv, all but the seconds. A third of the kills are aimed anywhere at start-up, a third
anywhere at the rounds, a third at the first write of a commit. A run that is killed before its
first commit is started again in the same directory. Ends with exit code 1 if anything differs.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import cycle
from pathlib import Path

METHODS = {
    "superfed-mm": ["--method", "superfed-mm"],
    "fedavg": ["--method", "fedavg"],
    "local": ["--method", "local"],
    "superfed-lm, stacked": ["--method", "superfed-lm", "--set", "engine=stacked"],
}
SETTINGS = [
    *("--data", "synthetic", "--rounds", "100", "--seed", "7", "--set", "samples=400"),
    *("--set", "clients=8", "--set", "clients_per_round=3", "--set", "epochs=2"),
    *("--set", "hidden=32", "--set", "eval_every=25"),
]
STARTUP = 3.0  # seconds: imports, data, tables
PLACES = ("start-up", "rounds", "commits")


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start the program in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", "from isthmus.cli.app import main; main()", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def last_written(state: Path) -> int:
    """Return when the state was last written; 0 while there is none."""
    try:
        return state.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def wait(process: subprocess.Popen[str], state: Path, place: str, rng: random.Random) -> None:
    """Wait for the instant at which to kill, or until the process has ended."""
    ends = time.monotonic() + 60
    if place == "start-up":
        ends = time.monotonic() + rng.uniform(0, STARTUP)
        while process.poll() is None and time.monotonic() < ends:
            time.sleep(0.001)
        return
    for _ in range(rng.randrange(2, 30)):  # commits to let pass
        before = last_written(state)
        while last_written(state) == before and process.poll() is None and time.monotonic() < ends:
            time.sleep(0.0001)
    if place == "rounds":
        time.sleep(rng.uniform(0, 0.05))


def tables(run: Path) -> dict[str, str]:
    """Read what must be equal, without the seconds."""
    same = ("federation.csv", "clients.csv", "reliability.csv")
    texts = {name: (run / name).read_text() for name in same}
    lines = (run / "rounds.csv").read_text().splitlines()
    texts["rounds.csv"] = "\n".join(line.rsplit(",", 2)[0] for line in lines)
    return texts | {"digest": json.loads((run / "summary.json").read_text())["digest"]}


def play(settings: list[str], run: Path, kills: int, rng: random.Random) -> Counter[str]:
    """Play one run with at most so many kills; count them by place."""
    state, done, begun = run / "state.lmdb", Counter[str](), False
    while True:
        begun = begun and state.is_file()
        process = start("resume", str(run)) if begun else start("run", *settings, "--out", str(run))
        if done.total() < kills:
            place = rng.choice(PLACES)
            wait(process, state, place, rng)
            if process.poll() is None:
                process.kill()
                process.communicate()
                done[place] += 1
                begun = True
                continue
        _, errors = process.communicate()
        if process.returncode == 0:
            return done
        if "before it began" not in errors:
            raise SystemExit(f"soak: {run} ended with code {process.returncode}: {errors.strip()}")
        begun = False


def main() -> None:
    """Play runs until there were enough kills."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--each", type=int, default=9, help="kills per run, at most")
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    rng = random.Random(wanted.seed)
    total, equal, runs = Counter[str](), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        references = {}
        for name, settings in METHODS.items():
            path = Path(folder, f"{name} in one piece")
            play([*settings, *SETTINGS], path, 0, rng)
            references[name] = tables(path)
        for name in cycle(METHODS):
            path = Path(folder, str(runs))
            left = min(wanted.each, wanted.kills - total.total())
            kills = play([*METHODS[name], *SETTINGS], path, left, rng)
            content = tables(path)
            differing = [key for key, text in references[name].items() if content[key] != text]
            total += kills
            runs += 1
            equal += not differing
            where = ", ".join(f"{kills[place]} in {place}" for place in PLACES)
            verdict = f"differs in {', '.join(differing)}" if differing else "equal"
            print(f"run {runs}, {name}: {where}; digest {content['digest']}: {verdict}", flush=True)
            if total.total() >= wanted.kills:
                break
    where = ", ".join(f"{total[place]} in {place}" for place in PLACES)
    print(f"{total.total()} kills ({where}) in {runs} runs, of which {equal} ended equal")
    sys.exit(0 if equal == runs else 1)


if __name__ == "__main__":
    main()
