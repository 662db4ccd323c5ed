"""Begins runs and goes on with them, as the command line does: with estimates and progress."""

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from isthmus import tracking
from isthmus.cli import messages
from isthmus.cli.progress import Board
from isthmus.engines import choice
from isthmus.engines.base import Cluster
from isthmus.errors import ClusterLostError, IsthmusError, UnwritableError
from isthmus.evaluation import splits_of
from isthmus.experiment.settings import Experiment
from isthmus.run.build import Built, build
from isthmus.run.forecast import count_best_bytes, forecast, refuse_what_cannot_fit
from isthmus.run.loop import RoundResult, Run, find_stop_reason, open_run, train
from isthmus.run.store import Store

UNASKED = 1 << 30  # bytes of best models that are kept unless somebody says otherwise


def begin(
    experiment: Experiment,
    out: Path,
    data_root: Path,
    sync: str = "round",
    track: Sequence[str] = (),
    workers: int | None = None,
    profile: bool = False,
    keep_best: bool | None = False,
    cluster: Cluster | None = None,
) -> Run:
    """Start a run.

    With `keep_best=None` best models are kept if there are validation data and they are small.
    """
    if sync not in ("round", "system"):
        raise IsthmusError(f"--sync {sync!r}; expected round or system; for example --sync round")
    tracking.check(track)
    step = experiment.step
    built = build(experiment, data_root=data_root, workers=workers, cluster=cluster)
    experiment, setting = built
    with closing(setting.engine):  # whatever happens before the first round
        spent = setting.engine.watch() if profile else None
        if keep_best is None:
            keep_best = count_best_bytes(setting) <= UNASKED and "validation" in splits_of(setting)
        needed = forecast(experiment, setting, out)
        refuse_what_cannot_fit(needed, out)
        setting.engine.prepare(setting)
        store = Store.create(out, setting, experiment.toml(), sync, keep_best)  # type: ignore[arg-type]
        for note in setting.federation.notes:
            messages.print_note(note)
        messages.print_forecast(experiment, needed)
        why = choice.explain_step(step, experiment.step, setting.task.model)
        messages.print_line(f"engine: {setting.engine.describe(why)}")
        began = time.perf_counter()
        run = _finish(built, store, out, track)
        if spent is not None:
            costs = [done.cost for done in run.rounds]
            messages.print_profile(spent(), costs, time.perf_counter() - began)
        return run


def go_on(
    run: Path,
    rounds: int | None,
    data_root: Path,
    track: Sequence[str] = (),
    workers: int | None = None,
    cluster: Cluster | None = None,
) -> Run:
    """Goes on with a run, to more rounds if that is wanted."""
    tracking.check(track)
    built, store = open_run(
        run, rounds=rounds, data_root=data_root, workers=workers, cluster=cluster
    )
    experiment, setting = built
    with closing(setting.engine):
        done, best = store.progress.t, store.progress.best
        for note in store.notes:
            messages.print_note(note)
        messages.print_line(f"{run}: {done} of {experiment.rounds} rounds are done")
        over = done == experiment.rounds or find_stop_reason(experiment, done, best)
        if not over:
            messages.print_forecast(experiment, forecast(experiment, setting, run, done), done)
            messages.print_line(f"engine: {setting.engine.describe('as when the run began')}")
            setting.engine.prepare(setting)
        store.start()
        return _finish(built, store, run, track)


def _finish(built: Built, store: Store, out: Path, track: Sequence[str]) -> Run:
    """Runs the rounds that are left; called when nothing can be wrong any more."""
    experiment, name = built.experiment, built.experiment.method["name"]
    done, best = store.progress.t, store.progress.best
    go_on_with = f"go on with: isthmus resume {out}"
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
        messages.exit_stopped(f"stopped in the middle of a round, which is lost; {go_on_with}")
    except (UnwritableError, ClusterLostError) as error:
        raise IsthmusError(f"{error}; what was committed before is kept: {go_on_with}") from None
    finally:
        store.release()
    if run.progress.t < experiment.rounds and not run.reason:
        stopped = f"stopped after round {run.progress.t} of {experiment.rounds}"
        messages.exit_stopped(f"{stopped}; {go_on_with}")
    return run


def find_free(path: Path) -> Path:
    """Finds a directory that is not taken: path, path-2, path-3, ..."""
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
