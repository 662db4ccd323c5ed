"""The round loop: sample, round, evaluate, commit."""

import gc
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from isthmus import streams
from isthmus.cohort import Clients, NobodyAnswered, Round
from isthmus.context import RunContext
from isthmus.engines.base import Cluster, one_thread
from isthmus.errors import IsthmusError
from isthmus.evaluation import Evaluation
from isthmus.evaluation import evaluate as evaluate_round
from isthmus.experiment.settings import Experiment
from isthmus.run.build import Built, OwnParts, build
from isthmus.run.database import Database, Sync, is_blank
from isthmus.run.newcomers import SHOTS, Newcomers, join
from isthmus.run.record import RecordedRun, from_rows, read, read_summary
from isthmus.run.store import (
    STATE,
    Best,
    BestModels,
    Memory,
    Progress,
    RoundUpdate,
    Store,
    read_experiment,
    read_rounds_done,
)
from isthmus.run.writer import Cost, bin_rows, evaluation_rows, federation_rows
from isthmus.shelf import Shelf
from isthmus.system.machine import explain_lack_of_memory


class RoundResult(NamedTuple):
    """What `watch` gets after each round."""

    cost: Cost
    evaluation: Evaluation | None
    notes: tuple[str, ...] = ()  # of the method and the engine


class Run(NamedTuple):
    """A finished run."""

    experiment: Experiment
    setting: RunContext
    progress: Progress
    rounds: tuple[RoundResult, ...]  # of this process
    digest: str
    newcomers: tuple[Newcomers, ...] = ()  # how the clients that were held out did
    reason: str = ""  # why it ended before its last round, if it gave up

    @property
    def evaluation(self) -> Evaluation:
        """The last evaluation that this process made."""
        for done in reversed(self.rounds):
            if done.evaluation is not None:
                return done.evaluation
        raise RuntimeError(
            "this process evaluated nothing; the run's clients.csv has what others did"
        )

    def record(self, path: Path) -> RecordedRun:
        """Return the run of a directory as reports read it, from the values in hand.

        Its tables are read where another process ran some of its rounds.
        """
        results = [result for result in self.rounds if result.evaluation is not None]
        if not results or len(self.rounds) < self.progress.t:
            return read(path)
        number, evaluation = results[-1].cost.round, self.evaluation
        rows: dict[str, Iterable[Sequence[Any]]] = {
            "federation": federation_rows(self.setting),
            "rounds": [result.cost for result in self.rounds],
            "clients": evaluation_rows(number, evaluation),
            "reliability": bin_rows(number, evaluation.scores),
        }
        return from_rows(path, self.experiment.flat(), rows, read_summary(path))

    def _choice(self) -> str:
        if not self.evaluation.chosen:
            return ""
        on_test = ", on TEST data" if self.experiment.rule.on_test else ""
        return f"; path point by {self.experiment.selection}{on_test}"

    def __repr__(self) -> str:
        name, t = self.experiment.method["name"], self.progress.t
        if not any(done.evaluation for done in self.rounds):
            return f"<{name} after {t} rounds; digest {self.digest}>"
        scores = self.evaluation.scores
        means = [
            f"{score.model} {score.figures.top1.mean():.2%}"
            for score in scores
            if score.split == "test" and score.model in ("personal", "shared")
        ]
        total, sample = len(self.setting.federation), self.setting.evaluated
        drawn = "" if sample is None else f"a sample of {len(sample)} of "
        return (
            f"<{name} after {t} rounds: mean top-1 over "
            f"{drawn}{total} clients' test parts: {', '.join(means)}"
            f"{self._choice()}; digest {self.digest}>"
        )


Watch = Callable[[RoundResult], bool | None]


def ignore(done: RoundResult) -> None:
    """Do nothing after a round."""


def federate(
    experiment: Experiment,
    *,
    data_root: Path | str = "data",
    out: Path | str | None = None,
    workers: int | None = None,
    cluster: Cluster | None = None,
    watch: Watch = ignore,
    keep_best: bool = False,
    **own: Unpack[OwnParts],
) -> Run:
    """Run an experiment, with custom parts where they are given.

    >>> from isthmus import Experiment, federate
    >>> run = federate(Experiment(method="fedavg", data="synthetic", rounds=1, epochs=1))
    >>> run.evaluation("shared").figures.top1.shape
    (20,)

    `method`, `data` and `model` take the place of the experiment's: a Method, a Federation, what
    builds a network. `others` are second networks of one's own, in the order in which the method
    names them `own`. `out` is a directory that keeps the run; `workers` are processes that compute,
    one for each core if left out, and never change a number; nor does a `cluster` of Ray that
    computes in their place. `watch` is called after every round, and ends the run there if it
    returns True. With `keep_best` the directory also keeps each
    client's personal model that was best on its validation data.
    """
    how: dict[str, Any] = {"data_root": data_root, "workers": workers, "cluster": cluster, **own}
    if out is None:
        built = build(experiment, **how)
        return train(built, Memory(built.setting), watch)
    built, store = open_run(Path(out), experiment, keep_best=keep_best, **how)
    store.start()
    return train(built, store, watch)


def resume(
    path: Path | str,
    *,
    rounds: int | None = None,
    data_root: Path | str = "data",
    workers: int | None = None,
    cluster: Cluster | None = None,
    watch: Watch = ignore,
    **own: Unpack[OwnParts],
) -> Run:
    """Resume a run that was stopped or killed; the result is bit-identical.

    `rounds` makes a run longer, where its method does not depend on its length. Parts of one's own
    are given as they were to `federate`.
    """
    built, store = open_run(
        Path(path), rounds=rounds, data_root=data_root, workers=workers, cluster=cluster, **own
    )
    store.start()
    return train(built, store, watch)


def open_run(
    out: Path,
    experiment: Experiment | None = None,
    *,
    resume: bool = False,
    rounds: int | None = None,
    device: str | None = None,
    sync: Sync = "round",
    keep_best: bool | None = False,
    may_be_readonly: bool = False,
    builder: Callable[..., Built] = build,
    cluster: Cluster | None = None,
    **how: Any,
) -> tuple[Built, Store]:
    """Open a run, or prepare a new one; nothing is written before `start` of what is returned.

    Args:
        out: The run's directory.
        experiment: That of a new run; None for the run that the directory holds.
        resume: Open the run that the directory holds, if it holds one, also where an experiment is
            given.
        rounds: The number of rounds in place of the one that the run was begun with.
        device: Where to compute in place of where the run did.
        sync: When rounds are flushed to disk, see `Store`.
        keep_best: Keep the best model of each client of a new run, too; None: if there are
            validation data and the models take less than 1 GB.
        may_be_readonly: Open a run to look at it, where nothing can be written as well.
        builder: What builds the experiment.
        cluster: Where to compute.
        **how: What else the builder takes.
    """
    if experiment is not None and not (resume and holds_run(out)):
        built = builder(experiment, cluster=cluster, **how)
        text = built.experiment.toml()
        return built, Store(out, built.setting, text, sync=sync, keep_best=keep_best)
    database = Database(out / STATE, sync=sync, may_be_readonly=may_be_readonly)
    try:
        recorded = Experiment.parse(read_experiment(database, out), out)
        settings = recorded.table() | ({} if rounds is None else {"rounds": rounds})
        settings |= {} if device is None else {"device": device}
        if cluster is None and settings["engine"] == "ray":
            settings["engine"] = "loop"  # the same bits, computed here
        built = builder(Experiment(**settings), cluster=cluster, **how)
        before, after = recorded.rounds, built.experiment.rounds
        _check_extension(built.setting, before, after, read_rounds_done(database, out))
        store = Store(out, built.setting, built.experiment.toml(), database, sync=sync)
    except BaseException:
        database.close()
        raise
    if after != before:
        store.notes.append(f"{after} rounds instead of {before}; what is done stays")
    return built, store


def holds_run(path: Path) -> bool:
    """Whether a directory holds a run that was begun."""
    return (path / STATE).is_file() and not is_blank(path / STATE)


def _check_extension(setting: RunContext, before: int, after: int, done: int) -> None:
    if after < done:
        raise IsthmusError(f"rounds={after}, but {done} rounds are done already; raise rounds")
    turns = [[t for t in setting.method.schedule(rounds) if t < done] for rounds in (before, after)]
    if turns[0] != turns[1]:
        raise IsthmusError(
            f"rounds={after} instead of {before} would have changed the {done} rounds that are "
            f"done: the method changes at {turns[0] or 'none'} of them, and would have at "
            f"{turns[1] or 'none'}; start a new run"
        )


@explain_lack_of_memory()
def train(built: Built, store: Memory | Store, watch: Watch = ignore) -> Run:
    """Run the rounds that are left; the store keeps what is done, whatever ends the run."""
    experiment, setting = built
    rounds: list[RoundResult] = []
    newcomers: list[Newcomers] = []
    status = "stopped"
    progress = store.progress
    reason = find_stop_reason(experiment, progress)
    gc.freeze()  # to go through all that there is by now would copy what workers share with it
    try:
        with one_thread():
            while progress.t < experiment.rounds and not reason:
                due = is_due(experiment, progress.t)
                step = advance(setting, progress, due, store.best_models)
                best = update_best(experiment, progress.best, progress.t + 1, step.evaluation)
                store.commit(step._replace(best=best))
                progress = store.progress
                reason = find_stop_reason(experiment, progress)
                rounds.append(RoundResult(step.cost, step.evaluation, step.notes))
                if watch(rounds[-1]):
                    break
        if progress.t == experiment.rounds or reason:
            status = "finished"
            if setting.newcomers is not None:
                newcomers = join(setting, progress, setting.newcomers, SHOTS)
                store.add_newcomers(newcomers, setting.newcomers.digest())
    finally:
        gc.unfreeze()
        setting.engine.close()
        digest = store.close(status, reason)
    return Run(experiment, setting, progress, tuple(rounds), digest, tuple(newcomers), reason)


def update_best(
    experiment: Experiment, best: Best, round: int, evaluation: Evaluation | None
) -> Best:
    """Return the best loss after a round, by which early stopping decides.

    Only evaluations that `eval_every` asks for count, not the one after the last round, so that a
    run that is made longer stops where it would have stopped in one piece.
    """
    every = experiment.eval_every
    if evaluation is None or not every or round % every or not experiment.validation:
        return best
    loss = float(evaluation("personal", "validation").figures.loss.mean())
    if loss < best.loss:
        return Best(loss, round)
    return best._replace(since=best.since + 1)


def find_stop_reason(experiment: Experiment, progress: Progress) -> str:
    """Return why a run stops after so many rounds, before its last; empty if it does not."""
    best, is_over = progress.best, progress.t == experiment.rounds
    if not experiment.patience or best.since < experiment.patience or is_over:
        return ""
    of = "" if experiment.eval_sample is None else " of the sampled clients"
    return (
        f"patience={experiment.patience}: mean validation loss of the personal models{of} no less "
        "than "
        f"{best.loss:.4g}, after round {best.round}, in the {best.since} evaluations since"
    )


def is_due(experiment: Experiment, t: int) -> bool:
    """Whether round t is followed by an evaluation."""
    every = experiment.eval_every
    return t + 1 == experiment.rounds or (every > 0 and (t + 1) % every == 0)


def advance(
    setting: RunContext, progress: Progress, evaluate: bool, best: BestModels | None = None
) -> RoundUpdate:
    """Run one round and, where it is due, evaluate all clients after it.

    `best` considers every client's personal model with its loss on validation data.
    """
    method, task = setting.method, setting.task
    t = progress.t
    began = time.perf_counter()
    round = Round(setting, t, progress.own, shelf=Shelf(progress.shelf))
    ids = streams.cohort(task.seed, t, task.clients, task.clients_per_round)
    server, changed = progress.server, {}
    try:
        server = method.round(progress.server, Clients(ids, round))
        changed = round.changed
    except NobodyAnswered:
        round.shelf = Shelf(progress.shelf)
    trained = time.perf_counter()
    evaluation = None
    if evaluate:
        after = Round(setting, t, progress.own, changed=dict(changed), shelf=round.shelf)
        try:
            keep = None if best is None else partial(best.consider, t + 1)
            evaluation = evaluate_round(after, server, keep)
        except NobodyAnswered as nobody:
            round.notes.append(str(nobody))
    cost = Cost(
        round=t + 1,
        lr=task.lr_at(t),
        asked=len(round.asked),
        answered=len(round.answered),
        down_bytes=round.down,
        up_bytes=round.up,
        head_variance=round.head_variance,
        train_seconds=trained - began,
        evaluate_seconds=time.perf_counter() - trained if evaluate else 0.0,
    )
    round.notes += setting.engine.notes
    setting.engine.notes.clear()
    return RoundUpdate(
        server,
        changed,
        cost,
        evaluation,
        dict(round.shelf.changed),
        tuple(round.notes),
        outcomes=tuple(setting.engine.outcomes),
        withheld=frozenset(setting.engine.withheld),
    )
