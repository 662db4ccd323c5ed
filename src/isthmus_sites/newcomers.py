"""Newcomers to a deployed run: sites that are there, are none of its clients, and get a model.

Between rounds the server hands each of them what its method delivers to newcomers, and the site
builds a model of its own by the method's `join`, as in simulation. No round depends on it: a
newcomer is asked alone, counts for no quorum, and is waited for no longer than a grace; after the
last round, when nobody waits for anything else, as long as a call may take.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from isthmus.cohort import NobodyAnswered, find_message
from isthmus.context import RunContext
from isthmus.engines.base import one_thread
from isthmus.evaluation import Score, collect, splits_of
from isthmus.run.newcomers import Joining, make_visit, reach_newcomers
from isthmus.run.store import Progress
from isthmus_sites.engine import ANSWERED, JoinParts, SitesEngine
from isthmus_sites.federations import imagine_newcomers
from isthmus_sites.forms import Forms
from isthmus_sites.plan import WaitLimits
from isthmus_sites.site import prepare_newcomer
from isthmus_sites.transport import Transport


class SiteJoin(NamedTuple):
    """What became of a newcomer that was asked to build its model."""

    site: str
    rounds: int  # that were done
    outcome: str  # answered, or why not
    scores: tuple[Score, ...] = ()  # of its models, if the server may have them

    def __str__(self) -> str:
        if self.outcome == ANSWERED:
            return f"{self.site} joined after round {self.rounds}: it has a model of its own"
        return f"{self.site} did not join after round {self.rounds}: {self.outcome}"


class SiteNewcomers:
    """Asks newcomers: when they come, after every evaluation, and when the last round is done."""

    def __init__(
        self,
        setting: RunContext,
        transport: Transport,
        run: str,
        limits: WaitLimits,
        scales: tuple[Tensor, ...] = (),
    ) -> None:
        self._setting = setting  # of the run
        self._forms: Forms | None = None  # of what newcomers are asked, once there is one
        self._transport = transport
        self._run = run
        self._limits = limits
        self._scales = scales
        self._asked: set[str] = set()
        self._put_off: set[str] = set()  # to the end: a round must not wait for them twice

    def list_present(self) -> list[str]:
        """Lists the sites that are there and are no clients of the run."""
        return sorted(set(self._transport.sites) - set(self._setting.federation.names))

    def join(self, progress: Progress, *, again: bool, last: bool = False) -> list[SiteJoin]:
        """Has newcomers join after the rounds so far; `again`: also those that have a model."""
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
        limits = self._limits._replace(quorum=1.0 if last else 0.0)
        engine = SitesEngine(self._transport, sites, self._run, self._forms, limits)
        engine.scales = self._scales
        data = imagine_newcomers(self._setting.federation, len(sites))
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
            for site, reply, why in engine.ask_to_join(visit, progress.t, parts):
                scores: tuple[Score, ...] = ()
                if reply:  # it may keep its figures
                    joining = measuring[site]
                    scores = tuple(collect(joining.names, joining.splits, [{0: reply}]))
                joined[site] = SiteJoin(site, progress.t, why or ANSWERED, scores)
        return [joined[site] for site in sites]
