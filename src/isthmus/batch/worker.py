"""`python -m isthmus.batch.worker`: runs, one after another, for whoever started this process.

Jobs come in and messages go out as lines of JSON, see processes.py. The process ends at once when
its input does: then the one that started it is gone, and a run is whole after any end.
"""

import json
import os
import sys
import tomllib
import traceback
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Any, TextIO

from isthmus.batch.headline import Headline
from isthmus.cohort import DivergenceError
from isthmus.engines.base import Cluster
from isthmus.errors import IsthmusError
from isthmus.experiment.settings import Experiment
from isthmus.run.build import Built, build
from isthmus.run.forecast import estimate
from isthmus.run.loop import RoundResult, holds_run, open_run, train
from isthmus.run.store import Store

Send = Callable[..., None]


def main() -> None:
    """Does the jobs that arrive until no more can."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    sys.stdout = sys.stderr  # what a library prints is no message
    lines = os.fdopen(os.dup(sys.stdin.fileno()))
    sys.stdin = open(os.devnull)  # noqa: SIM115  # who forks closes it, as if nobody were reading
    jobs: Queue[dict[str, Any]] = Queue()
    stop = Event()
    Thread(target=_read, args=(lines, jobs, stop), daemon=True).start()

    def send(**message: Any) -> None:
        out.write(json.dumps(message) + "\n")

    while True:
        job = jobs.get()
        try:
            (estimate_run if job["do"] == "estimate" else run)(job, send, stop)
        except IsthmusError as error:
            send(failed=str(error), diverged=isinstance(error, DivergenceError))
        except Exception as error:
            traceback.print_exc()
            send(failed=f"{type(error).__name__}: {error}".splitlines()[0])


def _read(lines: TextIO, jobs: "Queue[dict[str, Any]]", stop: Event) -> None:
    for line in lines:
        job = json.loads(line)
        if job["do"] == "stop":
            stop.set()
        else:
            jobs.put(job)
    os._exit(1)


def estimate_run(job: Mapping[str, Any], send: Send, stop: Event) -> None:
    """Estimates what a run will need; nothing is written."""
    built = build(_read_experiment(job), data_root=job["data_root"], **_read_share(job))
    with closing(built.setting.engine):
        needed = estimate(*built)
    if needed is not None and job.get("keep_best"):
        needed = needed.keep_best(built.setting)
    send(
        ended=None if needed is None else needed._asdict(),
        clients=built.experiment.clients,
        resident_bytes=_count_resident_bytes(),
    )


def run(job: Mapping[str, Any], send: Send, stop: Event) -> None:
    """Begins a run or goes on with it; stops after the round in which that was asked for."""
    built, store = _open(job)
    experiment, setting = built
    done, total = store.progress.t, experiment.rounds
    notes = [*setting.federation.notes, *store.notes]
    send(started=done, best=store.progress.best, notes=notes)

    def watch(done: RoundResult) -> bool:
        send(round=done.cost.round, headline=Headline.of(experiment, done))
        return stop.is_set() and done.cost.round < total

    result = train(built, store, watch)
    whole = result.progress.t == total or result.reason
    send(ended=result.digest if whole else None)


def _open(job: Mapping[str, Any]) -> tuple[Built, Store]:
    place, data_root = Path(job["place"]), Path(job["data_root"])
    if holds_run(place):
        built, store = open_run(place, data_root=data_root, **_read_share(job))
        store.start()
        return built, store
    built = build(_read_experiment(job), data_root=data_root, **_read_share(job))
    keep_best = bool(job.get("keep_best"))
    return built, Store.create(place, built.setting, built.experiment.toml(), keep_best=keep_best)


def _read_share(job: Mapping[str, Any]) -> dict[str, Any]:
    """Reads where a run computes: in this process, or on its share of a cluster."""
    cluster = Cluster(**job["cluster"]) if "cluster" in job else None
    return {"workers": job.get("workers", 1), "cluster": cluster}


def _read_experiment(job: Mapping[str, Any]) -> Experiment:
    return Experiment(**tomllib.loads(job["experiment"]))


def _count_resident_bytes() -> int:
    """Counts the bytes that this process takes, program and data, where the system tells."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
