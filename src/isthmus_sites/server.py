"""A deployed run at its server: the ordinary round loop, whose clients are sites."""

import datetime as dt
import json
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from isthmus.cohort import NobodyAnswered, find_message
from isthmus.context import RunContext
from isthmus.data.federation import Federation
from isthmus.data.scaling import Scales
from isthmus.engines.base import one_thread
from isthmus.errors import IsthmusError, UnwritableError
from isthmus.evaluation import Score, collect, splits_of
from isthmus.experiment.settings import Experiment
from isthmus.run import loop
from isthmus.run import open as opened
from isthmus.run.build import DISTANT, Built
from isthmus.run.loop import RoundResult, Run, train
from isthmus.run.newcomers import Joining, make_visit, reach_newcomers
from isthmus.run.open import Opened
from isthmus.run.record import read_summary
from isthmus.run.store import Progress, Store
from isthmus.system.files import write_text
from isthmus_sites import codec, exchange
from isthmus_sites.codec import CallHead
from isthmus_sites.consent import find_client
from isthmus_sites.engine import ANSWERED, JoinParts, SitesEngine
from isthmus_sites.federations import synthesize, synthesize_newcomers
from isthmus_sites.folders import ServerFolder, find_server
from isthmus_sites.forms import JOIN, Forms
from isthmus_sites.protocol import (
    JOINED,
    ServePlan,
    SiteAnswer,
    Transport,
    describe_outcome,
    write_event,
)
from isthmus_sites.site import prepare, prepare_newcomer

SCALES = "scales.json"  # in a run's directory
PAUSE = 0.2  # seconds between two versions of the file


class RecordingTransport:
    """A transport that writes to a file how a call stands; the last call stays there."""

    def __init__(self, transport: Transport, path: Path) -> None:
        self._transport = transport
        self._path = path

    @property
    def sites(self) -> Collection[str]:
        """The connected sites."""
        return self._transport.sites

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> Iterator[SiteAnswer | None]:
        """Send each site its message; see Transport."""
        if not messages:
            return
        first = next(iter(messages.values()))
        head: CallHead = codec.read_head(first, CallHead, len(first))
        status: dict[str, Any] = {
            "round": head.t + (head.function != JOIN),  # newcomers join after it
            "function": head.function,
            "since": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
            "outcomes": dict.fromkeys(messages, ""),
        }
        self._write(status)
        written = time.monotonic()
        answers = self._transport.ask(messages, seconds)
        try:
            for answer in answers:
                if answer is not None:
                    outcome = "answered" if answer.message is not None else answer.why or "absent"
                    status["outcomes"][answer.site] = outcome
                if time.monotonic() - written > PAUSE:
                    self._write(status)
                    written = time.monotonic()
                yield answer
        finally:
            self._write(status)
            if isinstance(answers, Generator):
                answers.close()

    def _write(self, status: Mapping[str, Any]) -> None:
        with suppress(UnwritableError):  # a full disk ends no call
            write_text(self._path, json.dumps(status))


class SiteJoin(NamedTuple):
    """What became of a newcomer that was asked to build its model."""

    site: str
    rounds: int  # that were done
    outcome: str  # answered, or why not
    scores: tuple[Score, ...] = ()  # of its models, if the server may have them

    def __str__(self) -> str:
        if self.outcome == ANSWERED:
            return f"{self.site} joined after round {self.rounds}: it has a model of its own"
        return (
            f"{self.site} did not join after round {self.rounds}: {describe_outcome(self.outcome)}"
        )


class SiteNewcomers:
    """Asks newcomers to join: when they connect, after evaluations and after the last round."""

    def __init__(
        self,
        setting: RunContext,
        transport: Transport,
        plan: ServePlan,
        scales: tuple[Tensor, ...] = (),
    ) -> None:
        self._setting = setting  # of the run
        self._forms: Forms | None = None  # of what newcomers are asked, once there is one
        self._transport = transport
        self._plan = plan
        self._scales = scales
        self._asked: set[str] = set()
        self._put_off: set[str] = set()  # to the end: a round must not wait for them twice

    def list_present(self) -> list[str]:
        """Return the connected sites that are no clients of the run."""
        return sorted(set(self._transport.sites) - set(self._setting.federation.names))

    def join(self, progress: Progress, *, again: bool, last: bool = False) -> list[SiteJoin]:
        """Have newcomers join after the rounds so far; `again`: also those that have a model."""
        sites = [
            site
            for site in self.list_present()
            if last or (site not in self._put_off and (again or site not in self._asked))
        ]
        joined = self._ask(progress, sites, last) if sites else []
        self._asked.update(sites)
        self._put_off.update(each.site for each in joined if each.outcome != ANSWERED)
        return joined

    def _ask(self, progress: Progress, sites: Sequence[str], last: bool) -> list[SiteJoin]:
        if self._forms is None:
            _, self._forms = prepare_newcomer(self._setting)
        plan = self._plan.model_copy(update={"quorum": 1.0 if last else 0.0})
        engine = SitesEngine(self._transport, sites, self._forms, plan)
        engine.scales = self._scales
        data = synthesize_newcomers(self._setting.federation, len(sites))
        visit = make_visit(self._setting, data, engine)
        parts: dict[str, JoinParts] = {}
        measuring: dict[str, Joining] = {}
        joined: dict[str, SiteJoin] = {}
        with one_thread():
            for k, site in enumerate(sites):
                one = reach_newcomers(visit, progress, [k])
                try:
                    delivery = visit.method.deliver(progress.server, one)
                except NobodyAnswered:  # where a method has to know something of it first
                    why = engine.outcomes[-1].outcome
                    joined[site] = SiteJoin(site, progress.t, why)
                    continue
                common = () if delivery.common is None else (delivery.common,)
                each = find_message(delivery.each, 0, visit.first)
                parts[site] = delivery.shared, each, common
                measuring[site] = Joining(delivery.common, splits_of(visit))
            for site, reply, outcome in engine.ask_to_join(visit, progress.t, parts):
                scores: tuple[Score, ...] = ()
                if reply:  # it may keep its figures
                    joining = measuring[site]
                    scores = tuple(collect(joining.names, joining.splits, [{0: reply}]))
                joined[site] = SiteJoin(site, progress.t, outcome, scores)
        return [joined[site] for site in sites]


def conduct(folder: Path, transport: Transport, stop: Callable[[], bool]) -> bool:
    """Run the rounds that are left; return whether all are done, or `stop` ended them."""
    place = ServerFolder(folder)
    plan = ServePlan.load(place)

    def tell(joined: SiteJoin) -> None:
        write_event(place.events, JOINED, text=str(joined), site=joined.site)

    watched = RecordingTransport(transport, place.call)
    run = run_rounds(plan, place.run, watched, stop, tell)
    return run.progress.t == run.experiment.rounds or bool(run.reason)


def run_rounds(
    plan: ServePlan,
    out: Path,
    transport: Transport,
    stop: Callable[[], bool],
    tell: Callable[[SiteJoin], None] = lambda joined: None,
) -> Run:
    """Run the rounds that are left in a run's directory; tell sites when all are done.

    `tell` is called for every newcomer that was asked to join.
    """
    built, engine = _build(plan, transport)
    experiment, setting = built
    store = open_store(out, built)
    store.start()
    own = dict(store.progress.own)  # to be had while the store is open
    if exchange.is_wanted(setting.federation):
        engine.scales = exchange.to_tensors(_find_scales(engine, setting.federation, out, store))
    newcomers = SiteNewcomers(setting, transport, plan, engine.scales)

    def record(joined: Sequence[SiteJoin], store: Store) -> None:
        for each in joined:
            found = [(None, each.scores)] if each.scores else []
            store.add_newcomers(found, "", each.site, each.outcome)
            tell(each)

    def watch(done: RoundResult) -> bool:
        own.update(store.progress.own)
        if stop():
            return True
        if plan.newcomers and done.cost.round < experiment.rounds:
            again = done.evaluation is not None
            record(newcomers.join(store.progress, again=again), store)
        return False

    run = train(built, store, watch)
    if run.progress.t == experiment.rounds or run.reason:
        engine.send_end(run.progress.t - 1, own)
        if plan.newcomers and newcomers.list_present():
            closed = open_store(out, built)
            try:
                record(newcomers.join(closed.progress, again=True, last=True), closed)
            finally:
                closed.release()
    return run


def _build(plan: ServePlan, transport: Transport) -> tuple[Built, SitesEngine]:
    setting, forms = prepare(plan.study)
    engine = SitesEngine(transport, plan.names, forms, plan, insists=True)
    return Built(plan.study, setting._replace(engine=engine)), engine


class OfflineTransport:
    """A transport without any site."""

    sites: Collection[str] = ()

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> Iterator[SiteAnswer | None]:
        """Report every site as absent."""
        return (SiteAnswer(site, None, "absent") for site in messages)


def forget_site(folder: Path, name: str) -> int:
    """Delete what the records of a finished run hold of a site; return the number of rows."""
    place = find_server(folder)
    plan = ServePlan.load(place)
    built, _ = _build(plan, OfflineTransport())
    store = open_store(place.run, built)
    status = read_summary(place.run).status
    store.start()
    try:
        return store.forget_newcomer(name) or store.forget_figures(find_client(plan.study, name))
    finally:
        store.close(status)


def _find_scales(engine: SitesEngine, data: Federation, out: Path, store: Store) -> Scales:
    """Return what inputs are scaled by: known since the first time, or from all sites' sums."""
    path = out / SCALES
    try:
        known = exchange.load(path)
        if known is None:
            known = engine.find_scales(data)
            exchange.save(known, path)
    except BaseException:
        store.close("stopped")
        raise
    return known


def open_store(out: Path, built: Built) -> Store:
    """Open the run of a directory, which has to be this one, or prepare it where there is none."""

    def check(recorded: Experiment, cluster: None) -> Built:
        if recorded.toml() != built.experiment.toml():
            raise IsthmusError(f"{out} holds the run of another experiment; move it elsewhere")
        return built

    return loop.open_run(out, built.experiment, resume=True, builder=check)[1]


def open_run(path: Path, data_root: Path) -> Opened:
    """Open a run, also one whose clients were sites; what only sites have is not in it."""
    experiment = Experiment.load(path / "experiment.toml")
    if experiment.data["name"] != DISTANT:
        return opened.open(path, data_root=data_root)
    data = synthesize(experiment).scale_by(exchange.load(path / SCALES))
    return opened.open(path, data_root=data_root, data=data)
