"""A site: answers calls of the one experiment that its people agreed to, and nothing else.

Whatever a server says, a site runs only functions that the agreed method declares, only as the
client that it is, only on tensors of the shapes that these functions take. Its data, its own state
and its models stay in its folder; every call and every answer is in its log before it leaves.
"""

import hashlib
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
from isthmus_sites.audit import AuditLog
from isthmus_sites.codec import CallHead, MessageError, ReplyHead
from isthmus_sites.consent import LABEL_COUNTS, Consent, check_deployable, find_consent
from isthmus_sites.federations import read_client, read_newcomer, synthesize, synthesize_newcomers
from isthmus_sites.folders import SiteFolder
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

HEXADECIMAL = set("0123456789abcdef")


class Refusal(Exception):  # noqa: N818 - it is an answer
    """Ends a call: its reason goes to the server as one of a few words, the rest into the log."""

    def __init__(self, reason: str, detail: str = ""):
        Exception.__init__(self, f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True)
class BuildAndMeasure:
    """What evaluation asks of a client, and the model that it deploys: that one stays here."""

    measuring: Scoring | Joining

    def __call__(self, client: Client, own: State, *received: State) -> tuple[State, Point, Any]:
        """Gives what the client holds, its model, and what is asked."""
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
        self._digest = consent.digest
        self._client = consent.client
        self._row = consent.row
        self._forms = forms
        self._models = models
        self._log = log
        self._floor = consent.refuse_floors(setting.federation)
        self._counts = consent.refuse_counts(setting.federation)

    def answer(self, message: bytes) -> bytes:
        """Answers a message; one that is refused is answered too, and nothing is raised."""
        head = None
        facts = {"bytes": len(message), "digest": hashlib.sha256(message).hexdigest()[:16]}
        try:
            head = self._read_head(message)
            facts |= {"run": head.run, "function": head.function}
            # A newcomer is asked after so many rounds, a client in the one that is next.
            facts |= {"round": head.t + (not self.consent.newcomer), "call": head.call}
            answer = self._do(head, message)
            refused = ""
        except Refusal as refusal:
            refused, facts["why"] = refusal.reason, refusal.detail
        except Exception as error:
            # Neither its text nor where it was raised leaves: both may show data.
            refused, facts["why"] = "failed", f"{type(error).__name__}: {error}"
        if refused:
            answer = codec.write(ReplyHead(head.call if head else "", refused))
        sent = {"sent": len(answer), "answer": hashlib.sha256(answer).hexdigest()[:16]}
        try:
            self._log.add(**facts, refused=refused, **sent)
        except IsthmusError:  # a full disk: what cannot be logged does not leave
            return codec.write(ReplyHead(head.call if head else "", "failed"))
        return answer

    def personal(self, which: str = "best") -> Personal:
        """Gives its personal model: the last, or the best on its validation data."""
        return self._models.open(which, self.setting, self._row)

    def close(self) -> None:
        """Closes what it holds open."""
        self.setting.engine.close()
        self.states.close()

    def _read_head(self, message: bytes) -> CallHead:
        try:
            head: CallHead = codec.read_head(message, CallHead, self._forms.largest)
        except MessageError as error:
            raise Refusal("message", str(error)) from None
        for digest in (head.call, head.committed, head.accepted):
            if len(digest) > codec.LONGEST_NAME or not set(digest) <= HEXADECIMAL:
                raise Refusal("message", "a name in it is not hexadecimal")
        return head

    def _do(self, head: CallHead, message: bytes) -> bytes:
        if head.version != codec.VERSION:
            raise Refusal("version", f"the server has {head.version}, this site {codec.VERSION}")
        if head.run != self._digest:
            raise Refusal("agreement", f"agreed to {self._digest}")
        if head.client != self._client:
            raise Refusal("client", f"it is asked as client {head.client}")
        if head.function == END and not self.consent.newcomer:
            self._find_own(head)
            self.states.finalize(head.committed)
            return codec.write(ReplyHead(head.call, own=head.committed))
        forms = self._forms.find(head.function, head.purpose)
        if not forms:
            raise Refusal("function", f"{head.function!r} for {head.purpose!r}")
        self._check_terms(head)
        received = self._read_received(message, forms)
        shared, each, brought, scales = received
        if head.purpose == exchange.PURPOSE:
            sums = exchange.answer(self.setting, self._row, head.function, brought)
            return codec.write(ReplyHead(head.call), sums)
        own = None if self.consent.newcomer else self._find_own(head)
        self._pin_scales(scales)
        function = find_function(self.setting, head.function, brought)
        if isinstance(function, Scoring | Joining):
            function = BuildAndMeasure(function)
        call = Call(function, shared, head.t, head.purpose, head.turn, head.choice)
        request = Request(self._row, InitialState(self._client) if own is None else own, each)
        ((_, result),) = self.setting.engine.run(self.setting, call, iter([request]))
        private = not self.consent.figures
        if head.function == JOIN:
            new, point, result = result
            if not tree.finite((new, point)):
                raise Refusal("failed", "it diverged: not all numbers are finite")
            self._keep_model(head.t - 1, point, result)
            self.states.replace(head.t, new)
            return codec.write(ReplyHead(head.call, private=private), () if private else result)
        if head.function in (SCORE, PATH):
            if head.function == SCORE:
                _, point, result = result
                self._keep_model(head.t, point, result)
            answer = ReplyHead(head.call, own=head.accepted, private=private)
            return codec.write(answer, result)
        new, reply = result
        if not tree.finite((new, reply)):
            raise Refusal("failed", "it diverged: not all numbers are finite")
        if self.consent.newcomer:
            return codec.write(ReplyHead(head.call), reply)
        digest = self.states.answer(head.t, head.committed, head.accepted, new)
        return codec.write(ReplyHead(head.call, own=digest or head.accepted), reply)

    def _check_terms(self, head: CallHead) -> None:
        told = self.setting.method.about().calls.get(head.function, "")
        name = head.function
        if head.purpose == exchange.PURPOSE:
            told, name = exchange.TELLS, exchange.DISCLOSED
        if told and name not in self.consent.disclose:
            raise Refusal("disclosure", told)
        if self._floor:
            raise Refusal("floor", self._floor)
        if LABEL_COUNTS in told and self._counts:
            raise Refusal("floor", self._counts)
        after = int(self.consent.newcomer)  # so many rounds, in place of the one that is next
        if not after <= head.t < self.setting.task.rounds + after or head.t < self.states.round:
            raise Refusal("round", f"round {head.t + 1} after round {self.states.round + 1}")

    def _pin_scales(self, parts: tuple[Tensor, ...]) -> None:
        """Scales inputs as the server says, if it says the same as before."""
        if not parts:
            return
        known = self.states.pin(b"scales", tree.pack(parts))
        if known != tree.pack(parts) or not bool((parts[1] > 0).all()):
            raise Refusal("scales")
        data = self.setting.federation.scale_by(exchange.from_tensors(parts))
        self.setting = self.setting._replace(federation=data)

    def _find_own(self, head: CallHead) -> State | None:
        like = self.setting.method.own(self.setting.task, self._client)
        try:
            return self.states.find(head.committed, head.accepted, like)
        except UnknownStateError as error:
            raise Refusal("state", str(error)) from None

    def _read_received(self, message: bytes, forms: list[Form]) -> Any:
        problem = ""
        for form in forms:
            try:
                return codec.read_tensors(message, form.received)
            except MessageError as error:
                problem = str(error)
        raise Refusal("form", problem)

    def _keep_model(self, t: int, point: Point, result: Any) -> None:
        """Keeps the personal model, and how the models did on this site's data."""
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
        scales = self.setting.federation.scales(self._row)
        self._models.keep(Snapshot(point, t, scales), found, loss)


def prepare(experiment: Experiment) -> tuple[RunContext, Forms]:
    """Builds what both sides know of a run, without any data."""
    setting = build_setting(experiment)
    with torch.random.fork_rng(devices=[]):
        learned = learn(setting).known
    return setting, Forms((*learned, *exchange.list_forms(setting.federation)))


def build_setting(experiment: Experiment) -> RunContext:
    """Builds a run on made-up data."""
    check_deployable(experiment)
    built = build(experiment, data=synthesize(experiment), workers=1)
    if built.experiment.engine != "loop":
        raise IsthmusError(
            f"engine={built.experiment.engine}; expected engine=loop, which computes one client "
            "at a time; set it"
        )
    return built.setting


def prepare_newcomer(setting: RunContext) -> tuple[RunContext, Forms]:
    """Builds what both sides know of how a site joins that is no client of a run."""
    data = synthesize_newcomers(setting.federation)
    with torch.random.fork_rng(devices=[]):
        forms = learn_newcomer(setting, data)
    return make_visit(setting, data, setting.engine), forms


def open_site(folder: Path) -> Site:
    """Opens a site's folder: what it agreed to last, its data, its states and its log."""
    place = SiteFolder(folder)
    consent = find_consent(place)
    store = place.state / f"{consent.digest}.lmdb"
    states = SiteStates(store)
    try:
        setting, forms = prepare_part(consent)
        data = read_share(consent)
        log = AuditLog(place.audit)
        models = SiteModels(store)
        return Site(consent, setting._replace(federation=data), forms, states, models, log)
    except BaseException:
        states.close()
        raise


def prepare_part(consent: Consent) -> tuple[RunContext, Forms]:
    """Builds what a site needs to know of its part in a run, without its data."""
    experiment = consent.read_experiment()
    return prepare_newcomer(build_setting(experiment)) if consent.newcomer else prepare(experiment)


def read_share(consent: Consent) -> Federation:
    """Reads the data that a site agreed to use."""
    experiment, path = consent.read_experiment(), Path(consent.data)
    if consent.newcomer:
        return read_newcomer(experiment, path, consent.options)
    return read_client(experiment, consent.client, path, consent.options)


def open_model(place: SiteFolder, which: str) -> tuple[Personal, Arrays, Scales | None]:
    """Opens a site's personal model, also while its run goes on; says what its inputs are like."""
    consent = find_consent(place)
    setting, _ = prepare_part(consent)
    models = SiteModels(place.state / f"{consent.digest}.lmdb")
    model = models.open(which, setting, consent.row)
    blank = make_blank(consent.read_experiment().data["schema"])
    return model, blank, models.read_scales(which)
