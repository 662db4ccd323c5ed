"""Published runs made again: those known to be quick first, until the time is up.

Each is an ordinary run below `runs`; what has ended leaves a record below `results`. Called again,
it continues where it stopped.
"""

import json
import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from heapq import heapreplace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from isthmus.batch.named_runs import Batch, Display, Failure, NamedRun, is_finished
from isthmus.errors import IsthmusError
from isthmus.experiment.registry import Table
from isthmus.run import record as reader
from isthmus.run.columns import columns
from isthmus_papers import record
from isthmus_papers.plan import PlannedRun, list_inputs
from isthmus_papers.record import RESULTS
from isthmus_papers.verdict import Records

RUNS = "runs"
LOCK = "reproduction.lock"
UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "min": 60.0, "s": 1.0}

Paces = Mapping[str, Sequence[tuple[str, float]]]  # as `list_paces` lists them


class RunForecast(NamedTuple):
    """A run that is left, and the seconds that it needs, where records of such runs have them."""

    run: PlannedRun
    seconds: float | None


def find_place(run: PlannedRun, out: Path) -> Path:
    """Return the directory of a run."""
    return out / RUNS / run.name


def list_left(runs: Sequence[PlannedRun], out: Path, known: Records) -> list[RunForecast]:
    """List the runs that have not ended, the quickest first; write the others' records.

    A run that diverged has ended: it would diverge again.
    """
    left = []
    here, paces = record.read_all([out / RESULTS]), list_paces(known)
    for run in runs:
        if run.identity in here and here[run.identity].failed:
            continue
        if is_finished(find_place(run, out), run.experiment):
            _keep(run, out)
            continue
        seconds = guess_seconds(run, known, paces)
        share = _find_share_left(run, out)
        left.append(RunForecast(run, None if seconds is None else share * seconds))
    return sorted(left, key=lambda each: (each.seconds is None, each.seconds))


def reproduce_runs(
    left: Sequence[RunForecast],
    out: Path,
    batch: Batch,
    display: Display,
    seconds: float | None = None,
) -> dict[str, Failure]:
    """Make the runs, for so many seconds; return by name which failed."""
    until = None if seconds is None else time.monotonic() + seconds
    runs = {each.run.name: each.run for each in left}
    named = [
        NamedRun(
            name,
            run.experiment,
            find_place(run, out),
            shows_figures=not run.is_trial,
            inputs=list_inputs(run.experiment),
        )
        for name, run in runs.items()
    ]
    failed: dict[str, Failure] = {}
    for each, failure in batch.run(named, display, until):
        if failure is None:
            _keep(runs[each.name], out)
            continue
        failed[each.name] = failure
        if failure.diverged:
            record.write(record.note_divergence(each.experiment, failure.why), out / RESULTS)
    return failed


def _find_share_left(run: PlannedRun, out: Path) -> float:
    """Return which share of a run's rounds is left."""
    done = 0
    with suppress(OSError, IsthmusError):  # it has not begun, or its table is damaged
        done = len(columns(find_place(run, out) / "rounds.csv", ["round"])["round"])
    return max(0.0, 1 - done / run.experiment.rounds)


def _keep(run: PlannedRun, out: Path) -> None:
    measured = record.measure(reader.read(find_place(run, out)), run.experiment)
    record.write(measured, out / RESULTS)


def list_paces(records: Records) -> Paces:
    """List the methods and the seconds per pass over the data of records, by data and network."""
    paces = defaultdict(list)
    for each in (each for each in records.values() if not each.failed):
        network = _describe_network(each.experiment["data"], each.experiment["model"])
        pace = each.seconds / _count_passes(each.experiment)
        paces[network].append((each.experiment["method"]["name"], pace))
    return paces


def guess_seconds(run: PlannedRun, records: Records, paces: Paces) -> float | None:
    """Guess the seconds of a run from records of the same network on the same data.

    Those of the run itself come first, then those of its method; they are scaled by how often an
    example is trained on.
    """
    same, wanted = records.get(run.identity), run.experiment
    if same is not None and not same.failed:
        return same.seconds
    like = paces.get(_describe_network(wanted.data, wanted.model), [])
    named = wanted.method["name"]
    known = [pace for name, pace in like if name == named] or [pace for _, pace in like]
    return median(known) * _count_passes(dict(wanted)) if known else None


def _describe_network(data: Table, model: Table) -> str:
    return json.dumps([data["name"], dict(model)], sort_keys=True)


def _count_passes(experiment: Mapping[str, Any]) -> float:
    """Count how often an example is trained on, on average."""
    share = experiment["clients_per_round"] / max(1, experiment["clients"])
    return float(experiment["rounds"] * share * experiment["epochs"])


def find_end(left: Sequence[RunForecast], jobs: int) -> float:
    """Return the seconds until all runs have ended, `jobs` at a time, where they are known."""
    ends = [0.0] * jobs
    for each in left:
        heapreplace(ends, ends[0] + (each.seconds or 0.0))
    return max(ends)


def read_budget(text: str) -> float:
    """Read a length of time as seconds.

    >>> read_budget("2h"), read_budget("90m"), read_budget("45s")
    (7200.0, 5400.0, 45.0)
    """
    parts = re.fullmatch(r"([0-9.]+) *(d|h|m|min|s|)", text.strip().lower())
    try:
        seconds = float(parts[1]) * UNITS[parts[2] or "h"] if parts else 0.0
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise IsthmusError(f"--budget {text!r} is no length of time; for example --budget 2h")
    return seconds
