"""Small deployed runs in one process: real sites, real messages, no network between them."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from isthmus import Experiment, Federation, Run, tree
from isthmus.context import RunContext
from isthmus.data.own.sites import describe
from isthmus.run.build import build
from isthmus.run.store import Progress, digest_of
from isthmus_sites.audit import AuditLog
from isthmus_sites.consent import Consent
from isthmus_sites.engine import SitesEngine, read_state_name
from isthmus_sites.federations import read_client
from isthmus_sites.preparation import list_disclosures
from isthmus_sites.protocol import ServePlan, SiteAnswer
from isthmus_sites.rehearsal import write_share
from isthmus_sites.server import run_rounds
from isthmus_sites.site import Site, prepare
from isthmus_sites.state import SiteModels, SiteStates
from small import WIDTH, fitting


class Corridor:
    """Carries messages to sites in the same process; `away` are those that do not answer."""

    def __init__(self, sites: Mapping[str, Any]):
        self.sites = dict(sites)
        self.away: set[str] = set()
        self.sent: list[tuple[str, bytes, bytes]] = []

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> Iterator[SiteAnswer | None]:
        for name, message in messages.items():
            if name in self.away:
                yield SiteAnswer(name, None, "absent")
                continue
            answer = self.sites[name].answer(message)
            self.sent.append((name, message, answer))
            yield SiteAnswer(name, answer)


def experiment_at_sites(method: Any, data: Federation, **changes: Any) -> Experiment:
    names = [f"site-{i}" for i in range(len(data))]
    given: dict[str, Any] = {
        "method": fitting(method) if isinstance(method, str) else method,
        "data": {"name": "sites", "names": names, "schema": describe(data.arrays)},
        "clients": len(data),
        "model": {"name": "mlp", "hidden": WIDTH},
        "rounds": 4,
        "clients_per_round": min(4, len(data)),
        "epochs": 2,
        "batch_size": 8,
        "lr": 0.1,
        "seed": 3,
        "engine": "loop",
        "step": "eager",
    }
    return Experiment(**(given | changes))


def simulate(experiment: Experiment, data: Federation) -> RunContext:
    """The same run in simulation, on the same divided data."""
    alone = dict(experiment) | {"data": "own", "partition": "own"}
    return build(Experiment(**alone), data=data, workers=1).setting


def digest_at_sites(end: Progress) -> str:
    """The digest of a simulated run as a server has it, which knows own states by theirs."""
    own = {i: read_state_name(tree.digest([state])) for i, state in end.own.items()}
    return digest_of(end._replace(own=own))


class Deployment:
    """A server's setting and its sites."""

    def __init__(self, folder: Path, experiment: Experiment, data: Federation, **terms: Any):
        self.experiment = experiment
        made, self.forms = prepare(experiment)
        self.made = made
        self.names: list[str] = list(experiment.data["names"])
        told = list(list_disclosures(made, self.forms))
        terms = {"disclose": told, "minimum_examples": 1, "minimum_label_count": 0} | terms
        self.folder = folder
        self.agreements: dict[str, Consent] = {}
        sites = {}
        for i, name in enumerate(self.names):
            (folder / name).mkdir(parents=True, exist_ok=True)
            write_share(data, i, folder / name / "data.npz")
            place = str(folder / name / "data.npz")
            text = experiment.toml()
            self.agreements[name] = Consent(experiment=text, site=name, data=place, **terms)
            sites[name] = self.open(name)
        self.corridor = Corridor(sites)
        self.setting = made._replace(engine=self.engine())

    def open(self, name: str) -> Site:
        agreement = self.agreements[name]
        own = read_client(self.experiment, agreement.client, Path(agreement.data), {})
        states = SiteStates(self.folder / name / "state.lmdb")
        models = SiteModels(self.folder / name / "state.lmdb")
        log = AuditLog(self.folder / name / "audit.log")
        return Site(agreement, self.made._replace(federation=own), self.forms, states, models, log)

    def run(
        self, out: Path, stop: Callable[[], bool] = bool, tell: Any = lambda _: None, **more: Any
    ) -> Run:
        """Runs the rounds that are left in a directory; `more` are the waits of its plan."""
        plan = ServePlan(experiment=self.experiment.toml(), **more)
        return run_rounds(plan, out, self.corridor, stop, tell)

    def close(self) -> None:
        for site in self.corridor.sites.values():
            site.close()  # type: ignore[attr-defined]

    def __enter__(self) -> "Deployment":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def engine(self, **limits: Any) -> SitesEngine:
        plan = ServePlan(experiment=self.experiment.toml(), **limits)
        return SitesEngine(self.corridor, self.names, self.forms, plan)
