"""The round loop: sample, round, evaluate, commit."""

import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from isthmus import streams
from isthmus.cohort import Clients, NobodyAnswered, Round
from isthmus.config import registry
from isthmus.config.experiment import Experiment
from isthmus.config.registry import OWN
from isthmus.context import Setting
from isthmus.data.build import add_noise
from isthmus.data.federation import Federation
from isthmus.data.own_files import found
from isthmus.engines import Plan, choice
from isthmus.engines.base import one_thread
from isthmus.engines.workers import count_workers
from isthmus.errors import IsthmusError
from isthmus.evaluation import Evaluation
from isthmus.evaluation import evaluate as evaluate_round
from isthmus.method import Method
from isthmus.models.flat import Flat
from isthmus.records.writer import Cost
from isthmus.shelf import Shelf
from isthmus.storage.database import Database
from isthmus.storage.store import (
    STATE,
    Memory,
    Progress,
    Step,
    Store,
    read_experiment,
    read_rounds_done,
)
from isthmus.task import Task
from isthmus.training import early_stopping
from isthmus.training.data import read_federation
from isthmus.training.newcomers import SHOTS, Newcomers, join


class Done(NamedTuple):
    """What `federate` tells after each round."""

    cost: Cost
    evaluation: Evaluation | None
    notes: tuple[str, ...] = ()  # what the method said in the round


class Run(NamedTuple):
    """A finished run."""

    experiment: Experiment
    setting: Setting
    progress: Progress
    rounds: tuple[Done, ...]  # of this process
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
        return (
            f"<{name} after {t} rounds: mean top-1 over "
            f"{len(self.setting.federation)} clients' test parts: {', '.join(means)}"
            f"{self._choice()}; digest {self.digest}>"
        )


def federate(
    experiment: Experiment,
    *,
    data: Federation | None = None,
    model: Callable[[], nn.Module] | None = None,
    others: Sequence[Callable[[], nn.Module]] = (),
    data_root: Path | str = "data",
    out: Path | str | None = None,
    workers: int | None = None,
    watch: Callable[[Done], bool | None] = lambda done: None,
) -> Run:
    """Runs an experiment; with own `data` and an own `model` if they are given.

    >>> from isthmus import Experiment, federate
    >>> run = federate(Experiment(method="fedavg", data="synthetic", rounds=1, epochs=1))
    >>> run.evaluation("shared").figures.top1.shape
    (20,)

    `others` are second networks of one's own, in the order in which the method names them `own`;
    `out` is a directory that keeps the run; `workers` are processes that compute, one for each
    core if left out, and never change a number; `watch` is called after every round, and ends the
    run there if it returns True.
    """
    experiment, setting = prepare(experiment, data, model, Path(data_root), others, workers)
    store = Memory(setting) if out is None else Store.create(Path(out), setting, experiment.toml())
    return train(experiment, setting, store, watch)


def resume(
    path: Path | str,
    *,
    rounds: int | None = None,
    data: Federation | None = None,
    model: Callable[[], nn.Module] | None = None,
    others: Sequence[Callable[[], nn.Module]] = (),
    data_root: Path | str = "data",
    workers: int | None = None,
    watch: Callable[[Done], bool | None] = lambda done: None,
) -> Run:
    """Goes on with a run that was stopped or killed, to the same bits as in one piece.

    `rounds` makes a run longer, where its method does not depend on its length.
    """
    experiment, setting, store = reopen(path, rounds, data, model, Path(data_root), others, workers)
    store.start(experiment.toml())
    return train(experiment, setting, store, watch)


def reopen(
    path: Path | str,
    rounds: int | None,
    data: Federation | None,
    model: Callable[[], nn.Module] | None,
    data_root: Path,
    others: Sequence[Callable[[], nn.Module]] = (),
    workers: int | None = None,
    device: str | None = None,
) -> tuple[Experiment, Setting, Store]:
    """Opens a run to go on with it, or to look at it, perhaps on another device."""
    path = Path(path)
    database = Database(path / STATE)
    try:
        # A run of an older version does not say; its steps were not compiled.
        before = Experiment(**{"step": "eager"} | tomllib.loads(read_experiment(database, path)))
        given = {name: getattr(before, name) for name in Experiment.model_fields}
        given |= {"rounds": before.rounds if rounds is None else rounds}
        experiment = Experiment(**given | {"device": device or before.device})
        experiment, setting = prepare(experiment, data, model, data_root, others, workers)
        _may_extend(setting, before.rounds, experiment.rounds, read_rounds_done(database, path))
        store = Store(path, setting, database)
        if experiment.rounds != before.rounds:
            store.notes.append(
                f"{experiment.rounds} rounds instead of {before.rounds}; what is done stays"
            )
    except BaseException:
        database.close()
        raise
    return experiment, setting, store


def _may_extend(setting: Setting, before: int, after: int, done: int) -> None:
    if after < done:
        raise IsthmusError(
            f"rounds={after}, but {done} are done; expected at least as many; raise rounds"
        )
    turns = [[t for t in setting.method.schedule(rounds) if t < done] for rounds in (before, after)]
    if turns[0] != turns[1]:
        raise IsthmusError(
            f"rounds={after} instead of {before} would have changed the {done} rounds that are "
            f"done: the method changes at {turns[0] or 'none'} of them, and would have at "
            f"{turns[1] or 'none'}; expected the same; start a new run"
        )


def train(
    experiment: Experiment,
    setting: Setting,
    store: Memory | Store,
    watch: Callable[[Done], bool | None] = lambda done: None,
) -> Run:
    """Runs the rounds that are left; whatever ends it, the store keeps what was done."""
    rounds: list[Done] = []
    newcomers: list[Newcomers] = []
    status = "stopped"
    progress = store.progress
    reason = early_stopping.reason(experiment, progress.t, progress.best)
    try:
        with one_thread():
            while progress.t < experiment.rounds and not reason:
                step = advance(setting, progress, due(experiment, progress.t))
                best = early_stopping.judged(
                    experiment, progress.best, progress.t + 1, step.evaluation
                )
                store.commit(step._replace(best=best))
                progress = store.progress
                reason = early_stopping.reason(experiment, progress.t, best)
                rounds.append(Done(step.cost, step.evaluation, step.notes))
                if watch(rounds[-1]):
                    break
        if progress.t == experiment.rounds or reason:
            status = "finished"
            if setting.newcomers is not None:
                newcomers = join(setting, progress, setting.newcomers, SHOTS)
                store.write_newcomers(newcomers)
    finally:
        setting.engine.close()
        digest = store.close(status, reason)
    return Run(experiment, setting, progress, tuple(rounds), digest, tuple(newcomers), reason)


def prepare(
    experiment: Experiment,
    data: Federation | None,
    model: Callable[[], nn.Module] | None,
    data_root: Path,
    others: Sequence[Callable[[], nn.Module]] = (),
    workers: int | None = None,
) -> tuple[Experiment, Setting]:
    """Builds all that stays the same during a run; own parts get their names in the experiment."""
    given: dict[str, Any] = {name: getattr(experiment, name) for name in Experiment.model_fields}
    if data is not None:
        _same(experiment.data.get("digest"), data.digest())
        given |= {"data": {"name": OWN, "digest": data.digest()}, "partition": OWN}
        given |= {"clients": len(data), **data.shares}
    elif experiment.data.get("path"):  # so that the run can be resumed from any directory
        place = str(found(experiment.data["path"], data_root))
        given |= {"data": dict(experiment.data) | {"path": place}}
    if model is not None:
        given |= {"model": {"name": OWN, "class": getattr(model, "__qualname__", str(model))}}
    elif experiment.model["name"] == OWN:
        raise IsthmusError(
            "the experiment's model is somebody's own; expected it as an argument; call "
            "federate(experiment, model=...) from Python"
        )
    if data is None:
        federation = read_federation(experiment, data_root)
    else:
        noise = registry.build("noise", experiment.noise)
        federation = add_noise(data, noise, experiment.dividing_seed)
    if len(federation) != given["clients"]:
        given |= _recounted(experiment, federation)
    experiment = Experiment(**given)
    shape, classes = federation.shape, federation.classes
    table = dict(experiment.model)
    build = model or partial(registry.build, "model", table, shape, classes)
    later = None
    if experiment.held_out:
        federation, later = federation.held_out(experiment.held_out, experiment.dividing_seed)
        if not len(later):
            raise IsthmusError(
                f"held_out={experiment.held_out} of {len(federation)} clients is none; expected at "
                "least one; raise held_out"
            )
    method: Method = registry.build("method", experiment.method)
    networks = [Flat(build, experiment.head), *map(Flat, _seconds(method, federation, others))]
    own = model is not None or bool(others)
    plan = choice.choose(_plan(experiment, federation, networks, own))
    given |= {"engine": plan.engine, "block": plan.block, "step": plan.step}
    experiment = Experiment(**given)
    workers = count_workers() if workers is None else workers
    setting = assemble(experiment, federation, build, others, workers)
    return experiment, setting._replace(newcomers=later)


def _same(wanted: str | None, given: str) -> None:
    if wanted not in (None, given):
        raise IsthmusError(
            f"the data have digest {given}; the experiment was made with {wanted}; give the same "
            "data, or leave the digest out"
        )


def _recounted(experiment: Experiment, federation: Federation) -> dict[str, Any]:
    """Says how many clients there are where the partition did not make as many as asked for."""
    clients, partition = len(federation), dict(experiment.partition)
    together = experiment.clients_per_round
    if not experiment.clients:
        together = min(together, clients)
    if together > clients:
        raise IsthmusError(
            f"clients_per_round={together}, but partition {partition['name']} made {clients} "
            f"clients of these data, not {experiment.clients}; expected at most as many as there "
            "are; lower clients_per_round"
        )
    if partition.get("drawn") == 0:  # so that the record makes the same clients again
        partition["drawn"] = experiment.clients or federation.arrays.count_owners()
    return {"clients": clients, "clients_per_round": together, "partition": partition}


def assemble(
    experiment: Experiment,
    federation: Federation,
    build: Callable[[], nn.Module],
    others: Sequence[Callable[[], nn.Module]] = (),
    workers: int = 1,
) -> Setting:
    """Puts method, task, data and engine together."""
    e = experiment
    if e.clients_per_round > len(federation):
        raise IsthmusError(
            f"clients_per_round={e.clients_per_round}, but {len(federation)} clients train; "
            "expected at most as many as there are; lower clients_per_round"
        )
    method: Method = registry.build("method", e.method)
    network = Flat(build, e.head)
    seconds = tuple(Flat(other) for other in _seconds(method, federation, others))
    w0 = network.fresh(streams.seed_of(e.seed, "start"))
    task = Task(
        model=network,
        w0=w0,
        classes=federation.classes,
        features=_features(network, w0, federation),
        clients=len(federation),
        rounds=e.rounds,
        epochs=e.epochs,
        batch_size=e.batch_size,
        lr=e.lr,
        lr_decay=e.lr_decay,
        momentum=e.momentum,
        weight_decay=e.weight_decay,
        seed=e.seed,
        clients_per_round=e.clients_per_round,
        selection=e.selection,
        calibration=e.calibration,
        others=seconds,
    )
    for second in seconds:
        _features(second, second.fresh(0), federation)
    own = e.model["name"] == OWN or bool(others)
    plan = _plan(e, federation, (network, *seconds), own, workers)
    return Setting(method, task, federation, choice.make_engine(plan))


def _plan(
    e: Experiment, federation: Federation, networks: Sequence[Flat], own: bool, workers: int = 1
) -> Plan:
    return Plan(
        engine=e.engine,
        step=e.step,
        block=e.block,
        device=e.device,
        rounds=e.rounds,
        clients_per_round=e.clients_per_round,
        epochs=e.epochs,
        batch_size=e.batch_size,
        sizes=[federation.sizes(i)[0] for i in range(len(federation))],
        networks=networks,
        own=own,
        workers=workers,
    )


def _seconds(
    method: Method, federation: Federation, given: Sequence[Callable[[], nn.Module]]
) -> Iterator[Callable[[], nn.Module]]:
    """Yields what builds the second network of each kind of client."""
    shape, classes = federation.shape, federation.classes
    names = method.networks().names
    if names.count(OWN) != len(given):
        raise IsthmusError(
            f"the method names {names.count(OWN)} second networks {OWN}, and {len(given)} were "
            f"given; expected as many; call federate(experiment, others=[...]) from Python"
        )
    mine = iter(given)
    for name in names:
        table = registry.read_network(name, shape)
        yield next(mine) if name == OWN else partial(registry.build, "model", table, shape, classes)


def _features(network: Flat, w: torch.Tensor, federation: Federation) -> int:
    """Counts the features that enter the head of a network, if it fits the data."""
    few = federation.part(0, "train").x[:2]  # batch normalisation refuses a single example
    expected = (len(few), federation.classes)
    try:
        with torch.no_grad():
            given = tuple(network.logits(w, few).shape)
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise IsthmusError(
            f"the model does not take inputs of shape {tuple(few.shape[1:])} ({reason}); expected "
            "a model for these data; choose another model"
        ) from error
    if given != expected:
        raise IsthmusError(
            f"the model gives logits of shape {given} for {len(few)} examples; expected "
            f"{expected}; make its last layer {federation.classes} wide"
        )
    try:
        with torch.no_grad():
            return network.features(w, few).shape[1]
    except IsthmusError:  # it has none; only a method that asks for them need know
        return 0


def due(experiment: Experiment, t: int) -> bool:
    """Tells whether round t is followed by an evaluation."""
    every = experiment.eval_every
    return t + 1 == experiment.rounds or (every > 0 and (t + 1) % every == 0)


def advance(setting: Setting, progress: Progress, evaluate: bool) -> Step:
    """Runs one round and, where it is due, evaluates all clients after it."""
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
        evaluation = evaluate_round(after, server)
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
    return Step(server, changed, cost, evaluation, dict(round.shelf.changed), tuple(round.notes))
