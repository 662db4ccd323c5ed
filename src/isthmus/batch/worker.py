"""`python -m isthmus.batch.worker`: runs, one after another, for the process that started it.

Jobs arrive and messages leave as lines of JSON (isthmus.batch.pool). The process ends at once when
its input does: the process that started it is gone, and a run is whole after any end.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Any, TextIO

from isthmus.batch.headline import Headline
from isthmus.cohort import DivergenceError
from isthmus.engines.base import Cluster
from isthmus.errors import IsthmusError
from isthmus.experiment.settings import Experiment
from isthmus.run.build import Built
from isthmus.run.forecast import forecast, refuse_what_cannot_fit
from isthmus.run.loop import RoundResult, open_run, train
from isthmus.run.store import Store

Send = Callable[..., None]


def main() -> None:
    """Do the jobs that arrive until the input ends."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    sys.stdout = sys.stderr  # what a library prints is no message
    lines = os.fdopen(os.dup(sys.stdin.fileno()))
    sys.stdin = open(os.devnull)  # noqa: SIM115  # a forked process closes it, and must not close the jobs
    jobs: Queue[dict[str, Any]] = Queue()
    stop = Event()
    Thread(target=_read, args=(lines, jobs, stop), daemon=True).start()

    def send(**message: Any) -> None:
        out.write(json.dumps(message) + "\n")

    while True:
        job = jobs.get()
        try:
            run(job, send, stop)
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


def run(job: Mapping[str, Any], send: Send, stop: Event) -> None:
    """Start or continue a run; stop after the round in which that was asked for."""
    built, store = _open(job)
    experiment = built.experiment
    done, total = store.progress.t, experiment.rounds
    best = store.progress.best
    send(started=done, best=(best.loss, best.round), notes=store.notes)

    def watch(done: RoundResult) -> bool:
        send(round=done.cost.round, headline=Headline.of(experiment, done))
        return stop.is_set() and done.cost.round < total

    result = train(built, store, watch)
    whole = result.progress.t == total or result.reason
    send(ended=result.digest if whole else None)


def _open(job: Mapping[str, Any]) -> tuple[Built, Store]:
    place, data_root = Path(job["place"]), Path(job["data_root"])
    cluster = Cluster(**job["cluster"]) if "cluster" in job else None
    where: dict[str, Any] = {"data_root": data_root, "workers": job.get("workers", 1)}
    where |= {"cluster": cluster, "keep_best": bool(job.get("keep_best"))}
    experiment = Experiment.parse(job["experiment"])
    built, store = open_run(place, experiment, resume=True, **where)
    if store.is_new:
        _check_inputs(built, job.get("inputs", {}), data_root)
        refuse_what_cannot_fit(forecast(*built, place), place)
    store.start()
    return built, store


def _check_inputs(built: Built, wanted: Mapping[str, int], data_root: Path) -> None:
    """Refuse data that are only a part of those that the run is meant for."""
    federation, name = built.setting.federation, built.experiment.data["name"]
    here = {
        "examples": len(federation.arrays.y),
        "classes": federation.classes,
        "clients": built.experiment.clients,
    }
    for what, count in wanted.items():
        if here[what] != count:
            raise IsthmusError(
                f"{name} has {here[what]:,} {what} here, and the run needs {count:,}; get all of "
                f"them: isthmus data get {name} --force --data-root {data_root}"
            )


if __name__ == "__main__":
    main()
