"""A site: answers calls of the one experiment that its people agreed to, and nothing else.

Whatever a server says, a site runs only functions that the agreed method declares, only as the
client that it is, only on tensors of the shapes that these functions take. Its data, its own state
and its models stay in its folder; every call and every answer is in its log before it leaves.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from isthmus import tree
from isthmus.client import Client, Point
from isthmus.context import Call, InitialState, Request, RunContext
from isthmus.data.arrays import Arrays
from isthmus.data.federation import Federation
from isthmus.data.own.sites import make_blank
from isthmus.data.scaling import Scales
from isthmus.errors import IsthmusError
from isthmus.evaluation import Scoring, place_model, splits_of
from isthmus.experiment.settings import Experiment
from isthmus.method import State
from isthmus.metrics.score import figures
from isthmus.run.build import build
from isthmus.run.newcomers import Joining, make_visit
from isthmus.run.open import Personal
from isthmus_sites import codec, exchange
from isthmus_sites.audit import AuditLog, seal
from isthmus_sites.codec import CallHead, MessageError, ReplyHead
from isthmus_sites.consent import Consent, check_deployable, find_consent
from isthmus_sites.federations import read_client, read_newcomer, synthesize, synthesize_newcomers
from isthmus_sites.folders import SiteFolder, find_site
from isthmus_sites.forms import (
    END,
    JOIN,
    PATH,
    SCORE,
    Form,
    Forms,
    find_function,
    learn,
    learn_newcomer,
)
from isthmus_sites.state import SiteModels, SiteStates, Snapshot, UnknownStateError

LABEL_COUNTS = "label counts"  # how a method describes that it tells them


class Refusal(Exception):  # noqa: N818 - it is an answer
    """Ends a call: its code goes to the server, its detail only into the log."""

    def __init__(self, code: str, detail: str = ""):
        Exception.__init__(self, detail)
        self.code = code


@dataclass(frozen=True)
class BuildAndMeasure:
    """What evaluation asks of a client, and the model that it deploys, which stays here."""

    measuring: Scoring | Joining

    def __call__(self, client: Client, own: State, *received: State) -> tuple[State, Point, Any]:
        """Return the client's own state, its model, and what is asked."""
        own, model = self.measuring.build(client, own, *received)
        return own, place_model(model), self.measuring.score(client, own, model, *received)


class Site:
    """One client at its data."""

    def __init__(
        self,
        consent: Consent,
        setting: RunContext,
        forms: Forms,
        states: SiteStates,
        models: SiteModels,
        log: AuditLog,
    ):
        self.consent = consent
        self.setting = setting
        self.states = states
        self.forms = forms
        self._models = models
        self._log = log

    def answer(self, message: bytes) -> bytes:
        """Answer a message; one that is refused is answered too, and nothing is raised."""
        head: CallHead | None = None
        facts: dict[str, Any] = {"bytes": len(message), "digest": seal(message)}
        try:
            head = codec.read_head(message, CallHead, self.forms.largest)
            facts |= {"run": head.run, "function": head.function}
            # A newcomer is asked after so many rounds, a client in the one that is next.
            facts |= {"round": head.t + (not self.consent.newcomer), "call": head.call}
            answer = self._do(head, message)
            refused = ""
        except (Refusal, MessageError, UnknownStateError) as refusal:
            refused, facts["why"] = refusal.code, str(refusal)
        except Exception as error:
            # Neither its text nor where it was raised leaves: both may show data.
            refused, facts["why"] = "failed", f"{type(error).__name__}: {error}"
        if refused:
            answer = codec.write(ReplyHead(head.call if head else "", refused))
        sent = {"sent": len(answer), "answer": seal(answer)}
        try:
            self._log.add(**facts, refused=refused, **sent)
        except IsthmusError:  # a full disk: what cannot be logged does not leave
            return codec.write(ReplyHead(head.call if head else "", "failed"))
        return answer

    def personal(self, which: str = "best") -> Personal:
        """Return the site's personal model: the last, or the best on its validation data."""
        return self._models.open(which, self.setting, self.consent.row)

    def close(self) -> None:
        """Close the engine and the store."""
        self.setting.engine.close()
        self.states.close()

    def _do(self, head: CallHead, message: bytes) -> bytes:
        for code, check in CHECKS.items():
            detail = check(self, head)
            if detail:
                raise Refusal(code, detail)
        if head.function == END:
            self._find_own(head)
            self.states.finalize(head.committed)
            return codec.write(ReplyHead(head.call, own=head.committed))
        shared, each, brought, scales = self._read_received(head, message)
        row = self.consent.row
        if head.purpose == exchange.PURPOSE:
            sums = exchange.answer(self.setting, row, head.function, brought)
            return codec.write(ReplyHead(head.call), sums)
        own = None if self.consent.newcomer else self._find_own(head)
        self._pin_scales(scales)
        function = find_function(self.setting, head.function, brought)
        if isinstance(function, Scoring | Joining):
            function = BuildAndMeasure(function)
        call = Call(function, shared, head.t, head.purpose, head.turn, head.choice)
        request = Request(row, InitialState(self.consent.client) if own is None else own, each)
        ((_, result),) = self.setting.engine.run(self.setting, call, iter([request]))
        if head.function == PATH:
            return self._report(head, result)
        if head.function == SCORE:
            _, point, measured = result
            self._keep_model(head.t, point, measured)
            return self._report(head, measured)
        if head.function == JOIN:
            new, point, measured = result
            _check_finite((new, point))
            self._keep_model(head.t - 1, point, measured)
            self.states.replace(head.t, new)
            return self._report(head, measured if self.consent.figures else ())
        new, reply = result
        _check_finite((new, reply))
        if self.consent.newcomer:
            return codec.write(ReplyHead(head.call), reply)
        digest = self.states.answer(head.t, head.committed, head.accepted, new)
        return codec.write(ReplyHead(head.call, own=digest or head.accepted), reply)

    def _report(self, head: CallHead, measured: Any) -> bytes:
        """Return a reply with what was measured; the own state is the one of before."""
        own = "" if head.function == JOIN else head.accepted
        reply = ReplyHead(head.call, own=own, private=not self.consent.figures)
        return codec.write(reply, measured)

    def _pin_scales(self, parts: tuple[Tensor, ...]) -> None:
        """Scale inputs as the server says, if it says the same as before."""
        if not parts:
            return
        known = self.states.pin(b"scales", tree.pack(parts))
        if known != tree.pack(parts) or not bool((parts[1] > 0).all()):
            raise Refusal("scales")
        data = self.setting.federation.scale_by(exchange.from_tensors(parts))
        self.setting = self.setting._replace(federation=data)

    def _find_own(self, head: CallHead) -> State | None:
        like = self.setting.method.own(self.setting.task, self.consent.client)
        return self.states.find(head.committed, head.accepted, like)

    def _read_received(self, head: CallHead, message: bytes) -> Any:
        problem = ""
        for form in self.forms.find(head.function, head.purpose):
            try:
                return codec.read_tensors(message, form.received)
            except MessageError as error:
                problem = str(error)
        raise Refusal("form", problem)

    def _keep_model(self, t: int, point: Point, result: Any) -> None:
        """Keep the personal model, and how the models did on this site's data."""
        splits = splits_of(self.setting)
        found = {}
        along = self.setting.method.path() is not None and not self.consent.newcomer
        names = ("personal", "shared")[: len(result) - along]
        for name, (_, tallies) in zip(names, result, strict=False):
            for split, sums in zip(splits, tallies, strict=True):
                measured = figures(sums)
                found[f"{name} {split}"] = {
                    "top1": float(measured.top1),
                    "loss": float(measured.loss),
                    "n": int(measured.n),
                }
        loss = found["personal validation"]["loss"] if "validation" in splits else None
        scales = self.setting.federation.scales(self.consent.row)
        self._models.keep(Snapshot(point, t, scales), found, loss)


def _check_finite(parts: Any) -> None:
    if not tree.finite(parts):
        raise Refusal("failed", "it diverged: not all numbers are finite")


def _check_version(site: Site, head: CallHead) -> str:
    right = head.version == codec.VERSION
    return "" if right else f"the server has {head.version}, this site {codec.VERSION}"


def _check_agreement(site: Site, head: CallHead) -> str:
    return "" if head.run == site.consent.digest else f"agreed to {site.consent.digest}"


def _check_client(site: Site, head: CallHead) -> str:
    return "" if head.client == site.consent.client else f"it is asked as client {head.client}"


def _check_function(site: Site, head: CallHead) -> str:
    known = site.forms.find(head.function, head.purpose)
    return "" if known else f"{head.function!r} for {head.purpose!r}"


def _find_disclosure(site: Site, head: CallHead) -> tuple[str, str]:
    """Return what a call discloses besides models and counts, and the name to agree to it by."""
    if head.purpose == exchange.PURPOSE:
        return exchange.TELLS, exchange.DISCLOSED
    return site.setting.method.about().calls.get(head.function, ""), head.function


def _check_disclosure(site: Site, head: CallHead) -> str:
    disclosed, name = _find_disclosure(site, head)
    return "" if name in site.consent.disclose else disclosed


def _check_floor(site: Site, head: CallHead) -> str:
    disclosed, _ = _find_disclosure(site, head)
    return site.consent.find_floor(site.setting.federation, counts=LABEL_COUNTS in disclosed)


def _check_round(site: Site, head: CallHead) -> str:
    after = int(site.consent.newcomer)  # so many rounds, in place of the one that is next
    last = site.setting.task.rounds + after
    right = after <= head.t < last and head.t >= site.states.round
    return "" if right else f"round {head.t + 1} after round {site.states.round + 1}"


# What a call is refused for before any tensor is read, in this order; codes of `REFUSALS`.
CHECKS: dict[str, Callable[[Site, CallHead], str]] = {
    "version": _check_version,
    "agreement": _check_agreement,
    "client": _check_client,
    "function": _check_function,
    "disclosure": _check_disclosure,
    "floor": _check_floor,
    "round": _check_round,
}


def prepare(experiment: Experiment) -> tuple[RunContext, Forms]:
    """Build what both sides know of a run, without any data."""
    setting = build_setting(experiment)
    with torch.random.fork_rng(devices=[]):
        learned = learn(setting).known
    end = Form(END, "", (), ())
    return setting, Forms((*learned, *exchange.list_forms(setting.federation), end))


def build_setting(experiment: Experiment) -> RunContext:
    """Build a run on synthetic data."""
    check_deployable(experiment)
    built = build(experiment, data=synthesize(experiment), workers=1)
    if built.experiment.engine != "loop":
        raise IsthmusError(
            f"sites compute with engine=loop, not engine={built.experiment.engine}; set engine=loop"
        )
    return built.setting


def prepare_newcomer(setting: RunContext) -> tuple[RunContext, Forms]:
    """Build what both sides know of how a site joins that is no client of a run."""
    data = synthesize_newcomers(setting.federation)
    with torch.random.fork_rng(devices=[]):
        forms = learn_newcomer(setting, data)
    return make_visit(setting, data, setting.engine), forms


def prepare_part(consent: Consent) -> tuple[RunContext, Forms]:
    """Build what a site needs to know of its part in a run, without its data."""
    if consent.newcomer:
        return prepare_newcomer(build_setting(consent.study))
    return prepare(consent.study)


def read_share(consent: Consent) -> Federation:
    """Read the data that a site agreed to use."""
    if consent.newcomer:
        return read_newcomer(consent.study, Path(consent.data), consent.options)
    return read_client(consent.study, consent.client, Path(consent.data), consent.options)


def open_site(folder: Path) -> Site:
    """Open a site's folder: what it agreed to last, its data, its states and its log."""
    place = SiteFolder(folder)
    consent = find_consent(place)
    store = place.state / f"{consent.digest}.lmdb"
    states = SiteStates(store)
    try:
        setting, forms = prepare_part(consent)
        setting = setting._replace(federation=read_share(consent))
        return Site(consent, setting, forms, states, SiteModels(store), AuditLog(place.audit))
    except BaseException:
        states.close()
        raise


def open_model(folder: Path, which: str) -> tuple[Personal, Arrays, Scales | None]:
    """Return a site's personal model, also during its run, and what its inputs look like."""
    place = find_site(folder)
    consent = find_consent(place)
    setting, _ = prepare_part(consent)
    models = SiteModels(place.state / f"{consent.digest}.lmdb")
    model = models.open(which, setting, consent.row)
    blank = make_blank(consent.study.data["schema"])
    return model, blank, models.read_scales(which)
