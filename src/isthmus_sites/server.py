"""A deployed run at its server: the ordinary round loop, whose clients are sites."""

import json
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from isthmus.data.federation import Federation
from isthmus.data.scaling import Scales
from isthmus.errors import IsthmusError
from isthmus.experiment.settings import Experiment
from isthmus.run import open as opened
from isthmus.run.build import DISTANT, Built
from isthmus.run.database import Database, is_blank
from isthmus.run.loop import RoundResult, Run, train
from isthmus.run.open import Opened
from isthmus.run.store import STATE, Store, read_experiment
from isthmus_sites import exchange
from isthmus_sites.consent import digest_experiment, find_client
from isthmus_sites.engine import SitesEngine
from isthmus_sites.events import JOINED, write_event
from isthmus_sites.federations import imagine
from isthmus_sites.folders import ServerFolder, find_server
from isthmus_sites.newcomers import SiteJoin, SiteNewcomers
from isthmus_sites.plan import ServePlan
from isthmus_sites.site import prepare
from isthmus_sites.transport import SiteAnswer, Transport
from isthmus_sites.under_way import WatchedTransport

SCALES = "scales.json"  # in a run's directory


def conduct(folder: Path, transport: Transport, stop: Callable[[], bool]) -> bool:
    """Runs the rounds that are left; True: all are done. False: `stop` asked for it, in between."""
    place = ServerFolder(folder)
    plan = ServePlan.load(place)

    def tell(joined: SiteJoin) -> None:
        write_event(place.events, JOINED, text=str(joined), site=joined.site)

    watched = WatchedTransport(transport, place.call)
    run = run_rounds(plan, place.run, watched, stop, tell)
    return run.progress.t == run.experiment.rounds or bool(run.reason)


def run_rounds(
    plan: ServePlan,
    out: Path,
    transport: Transport,
    stop: Callable[[], bool],
    tell: Callable[[SiteJoin], None] = lambda joined: None,
) -> Run:
    """Runs the rounds that are left in a run's directory; sites are told when all are done.

    `tell` hears of every newcomer that was asked to join.
    """
    built, engine = _build(plan, transport)
    experiment, setting = built
    store = open_store(out, built)
    own = dict(store.progress.own)
    if exchange.is_wanted(setting.federation):
        engine.scales = exchange.to_tensors(_find_scales(engine, setting.federation, out, store))
    digest = digest_experiment(experiment)
    newcomers = SiteNewcomers(setting, transport, digest, plan.limits, engine.scales)

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
            closed = Store(out, setting, Database(out / STATE))
            try:
                record(newcomers.join(closed.progress, again=True, last=True), closed)
            finally:
                closed.release()
    return run


def _build(plan: ServePlan, transport: Transport) -> tuple[Built, SitesEngine]:
    experiment = _read(plan)
    setting, forms = prepare(experiment)
    names, digest = experiment.data["names"], digest_experiment(experiment)
    engine = SitesEngine(transport, names, digest, forms, plan.limits, insists=True)
    return Built(experiment, setting._replace(engine=engine)), engine


def _read(plan: ServePlan) -> Experiment:
    return Experiment(**tomllib.loads(plan.experiment))


class Nowhere:
    """Carries nothing: nobody is there."""

    sites: Collection[str] = ()

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> Iterator[SiteAnswer | None]:
        """Says so of everybody."""
        return (SiteAnswer(site, None, "absent") for site in messages)


def forget_site(folder: Path, name: str) -> int:
    """Deletes what the records of a run that has ended say of a site; counts the rows."""
    place = find_server(folder)
    plan = ServePlan.load(place)
    built, _ = _build(plan, Nowhere())
    store = Store(place.run, built.setting, Database(place.run / STATE))
    status = str(json.loads((place.run / "summary.json").read_text("utf-8"))["status"])
    gone = store.forget_newcomer(name)
    try:
        gone = gone or store.forget_figures(find_client(_read(plan), name))
    except IsthmusError:
        store.release()
        raise
    store.start(built.experiment.toml())
    store.close(status)
    return gone


def _find_scales(engine: SitesEngine, data: Federation, out: Path, store: Store) -> Scales:
    """Finds what inputs are scaled by: as of the first time, or from all sites' sums now."""
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
    """Opens a run's directory: a new run from nothing, one that is there from where it was."""
    text = built.experiment.toml()
    path = out / STATE
    if not path.is_file() or is_blank(path):
        return Store.create(out, built.setting, text)
    database = Database(path)
    try:
        there = read_experiment(database, out)
        if there != text:
            raise IsthmusError(
                f"{out} holds the run of another experiment; expected the one it was begun with; "
                "move it elsewhere, or begin in a new folder"
            )
        store = Store(out, built.setting, database)
    except BaseException:
        database.close()
        raise
    store.start(text)
    return store


def open_run(path: Path, data_root: Path) -> Opened:
    """Opens a run, also one whose clients were sites: what only sites have is not in it."""
    experiment = Experiment.load(path / "experiment.toml")
    if experiment.data["name"] != DISTANT:
        return opened.open(path, data_root=data_root)
    data = imagine(experiment).scale_by(exchange.load(path / SCALES))
    return opened.open(path, data_root=data_root, data=data)
