"""Start and resume runs as the command line does: with a forecast, progress and trackers."""

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from isthmus import tracking
from isthmus.cli import messages
from isthmus.cli.progress import Board
from isthmus.engines import choice
from isthmus.errors import ClusterLostError, IsthmusError, UnwritableError
from isthmus.experiment.settings import Experiment
from isthmus.run.build import Built
from isthmus.run.forecast import forecast, refuse_what_cannot_fit
from isthmus.run.loop import RoundResult, Run, find_stop_reason, open_run, train
from isthmus.run.store import Store


def conduct(
    out: Path,
    experiment: Experiment | None = None,
    *,
    sync: Any = "round",
    track: Sequence[str] = (),
    profile: bool = False,
    **how: Any,
) -> Run:
    """Run an experiment into a new directory or, without one, resume the run of a directory.

    Args:
        out: The directory.
        experiment: That of a new run.
        sync: When rounds are flushed to disk, round or system.
        track: Trackers, by their names.
        profile: Print where the time went.
        **how: What else `open_run` takes.
    """
    if sync not in ("round", "system"):
        raise IsthmusError(f"--sync must be round or system, not {sync!r}")
    tracking.check(track)
    built, store = open_run(out, experiment, sync=sync, **how)
    setting, done, total = built.setting, store.progress.t, built.experiment.rounds
    with closing(setting.engine):  # whatever happens before the first round
        spent = setting.engine.watch() if profile else None
        is_over = done == total or find_stop_reason(built.experiment, store.progress)
        if not is_over:
            needed = forecast(built.experiment, setting, out, done)
            if experiment is not None:
                refuse_what_cannot_fit(needed, out)
            setting.engine.prepare(setting)
        store.start()
        for note in store.notes:
            messages.print_note(note)
        if experiment is None:
            messages.print_line(f"{out}: {done} of {total} rounds are done")
        if not is_over:
            messages.print_forecast(built.experiment, needed, done)
            why = "as when the run began"
            if experiment is not None:
                step = built.experiment.step
                why = choice.explain_step(experiment.step, step, setting.task.model)
            messages.print_line(f"engine: {setting.engine.describe(why)}")
        began = time.perf_counter()
        run = _train(built, store, out, track)
        if spent is not None:
            costs = [result.cost for result in run.rounds]
            messages.print_profile(spent(), costs, time.perf_counter() - began)
        return run


def _train(built: Built, store: Store, out: Path, track: Sequence[str]) -> Run:
    """Run the rounds that are left, with progress and trackers."""
    experiment, name = built.experiment, built.experiment.method["name"]
    done, best = store.progress.t, store.progress.best
    go_on_with = f"continue with: isthmus resume {out}"
    below = built.setting.engine.describe_now
    try:
        with (
            messages.catch_interrupts() as stop,
            tracking.track(track, out, experiment) as write,
            Board({name: experiment.rounds}, below=below) as shown,
            shown.follow(name, experiment, done, best) as show,
        ):

            def watch(round: RoundResult) -> bool:
                if round.cost.round == done + 1:
                    messages.print_traffic(experiment, round.cost)
                show(round)
                write(round)
                return stop() and round.cost.round < experiment.rounds

            run = train(built, store, watch)
    except KeyboardInterrupt:
        messages.exit_stopped(f"stopped during a round, which is lost; {go_on_with}")
    except (UnwritableError, ClusterLostError) as error:
        raise IsthmusError(f"{error}; the rounds before are kept; {go_on_with}") from None
    finally:
        store.release()
    if run.progress.t < experiment.rounds and not run.reason:
        stopped = f"stopped after round {run.progress.t} of {experiment.rounds}"
        messages.exit_stopped(f"{stopped}; {go_on_with}")
    return run


def find_free(path: Path) -> Path:
    """Return the first of path, path-2, path-3, ... that does not exist."""
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
