"""`python -m isthmus.comparison.worker`: runs, one after another, for whoever started this process.

Jobs come in and news go out as lines of JSON, see processes.py. The process ends at once when its
input does: then the one that started it is gone, and a run is whole after any end.
"""

import json
import os
import sys
import tomllib
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Any

from isthmus.cohort import DivergenceError
from isthmus.config.experiment import Experiment
from isthmus.errors import IsthmusError
from isthmus.storage.database import is_blank
from isthmus.storage.store import STATE, Store
from isthmus.training.build import Built, build
from isthmus.training.estimate import estimate
from isthmus.training.federate import Done, reopen, train
from isthmus.training.headline import Headline

Tell = Callable[..., None]


def main() -> None:
    """Does the jobs that arrive until no more can."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    sys.stdout = sys.stderr  # what a library prints is no news
    jobs: Queue[dict[str, Any]] = Queue()
    enough = Event()
    Thread(target=_listen, args=(jobs, enough), daemon=True).start()

    def tell(**news: Any) -> None:
        out.write(json.dumps(news) + "\n")

    while True:
        job = jobs.get()
        try:
            (foretell if job["do"] == "estimate" else work)(job, tell, enough)
        except IsthmusError as error:
            tell(failed=str(error), diverged=isinstance(error, DivergenceError))
        except Exception as error:
            traceback.print_exc()
            tell(failed=f"{type(error).__name__}: {error}".splitlines()[0])


def _listen(jobs: "Queue[dict[str, Any]]", enough: Event) -> None:
    for line in sys.stdin:
        job = json.loads(line)
        if job["do"] == "stop":
            enough.set()
        else:
            jobs.put(job)
    os._exit(1)


def foretell(job: Mapping[str, Any], tell: Tell, enough: Event) -> None:
    """Estimates what a run will need; nothing is written."""
    needed = estimate(*build(_experiment(job), data_root=job["data_root"], workers=1))
    tell(ended=None if needed is None else needed._asdict(), resident_bytes=_resident())


def work(job: Mapping[str, Any], tell: Tell, enough: Event) -> None:
    """Begins a run or goes on with it; stops after the round in which that was asked for."""
    built, store = _open(job)
    experiment, setting = built
    done, total = store.progress.t, experiment.rounds
    notes = [*setting.federation.notes, *store.notes]
    tell(opened=done, best=store.progress.best, notes=notes)

    def watch(done: Done) -> bool:
        tell(round=done.cost.round, headline=Headline.of(experiment, done))
        return enough.is_set() and done.cost.round < total

    run = train(built, store, watch)
    tell(ended=run.digest if run.progress.t == total or run.reason else None)


def _open(job: Mapping[str, Any]) -> tuple[Built, Store]:
    place, data_root = Path(job["place"]), Path(job["data_root"])
    if (place / STATE).is_file() and not is_blank(place / STATE):
        built, store = reopen(place, data_root=data_root, workers=1)
        store.start(built.experiment.toml())
        return built, store
    built = build(_experiment(job), data_root=data_root, workers=1)
    return built, Store.create(place, built.setting, built.experiment.toml())


def _experiment(job: Mapping[str, Any]) -> Experiment:
    return Experiment(**tomllib.loads(job["experiment"]))


def _resident() -> int:
    """The bytes that this process takes, program and data, where the system tells."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
