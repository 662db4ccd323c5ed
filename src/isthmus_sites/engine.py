"""The engine whose clients are sites: a call is a message, an own state is known by its digest."""

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from isthmus.context import Call, CallOutcome, InitialState, Request, RunContext
from isthmus.data.federation import Federation
from isthmus.data.scaling import Scales
from isthmus.errors import IsthmusError
from isthmus.method import State
from isthmus.run import newcomers
from isthmus_sites import codec, exchange
from isthmus_sites.codec import VERSION, CallHead, MessageError, ReplyHead
from isthmus_sites.forms import END, JOIN, PATH, SCORE, Form, Forms, name_function
from isthmus_sites.protocol import REFUSALS, SiteAnswer, Transport, WaitLimits

DIGEST = 8  # bytes

# What a newcomer gets: what all do, what it alone does, the shared model if there is one.
JoinParts: TypeAlias = tuple[tuple[State, ...], tuple[State, ...], tuple[State, ...]]
ANSWERED, REFUSED = "answered", "it refused: "


class SitesEngine:
    """Sends calls to sites and yields what they answer, as long as its patience lasts."""

    handle = torch.zeros(DIGEST, dtype=torch.uint8)  # the digest of a state that lives at a site
    workers = 1

    def __init__(
        self,
        transport: Transport,
        names: Sequence[str],
        run: str,
        forms: Forms,
        limits: WaitLimits,
        clock: Callable[[], float] = time.monotonic,
        insists: bool = False,
    ):
        self.notes: list[str] = []
        self.outcomes: list[CallOutcome] = []
        self.withheld: set[int] = set()
        self.scales: tuple[Tensor, ...] = ()  # of all sites' inputs, where they scale them alike
        self._transport = transport
        self._names = names
        self._run = run
        self._forms = forms
        self._limits = limits
        self._clock = clock
        self._insists = insists  # a round that all refuse ends the run
        self._round = -1
        self._committed: dict[int, str] = {}  # own states as of the last round that is done

    def run(
        self, setting: RunContext, call: Call, requests: Iterator[Request]
    ) -> Iterator[tuple[int, Any]]:
        """Yields (client, what its function returned) for sites that answer in time."""
        if call.t != self._round:
            self._round, self._committed = call.t, {}
            self.outcomes, self.withheld = [], set()
        name, brought = name_function(setting.method, call.function)
        forms = self._forms.find(name, call.purpose)
        heads: dict[str, CallHead] = {}
        messages: dict[str, bytes] = {}
        numbers: dict[str, int] = {}
        for request in requests:
            site = self._names[request.i]
            numbers[site] = request.i
            heads[site] = self._head(setting, call, name, request)
            messages[site] = codec.write(
                heads[site], (call.shared, request.each, brought, self.scales)
            )
        missing: dict[str, str] = {}
        private: dict[int, Any] = {}
        for answer in self._listen(messages, waits=name in (SCORE, PATH)):
            result, why = self._open(answer, heads[answer.site], forms)
            if why:
                missing[answer.site] = why
                continue
            reply, own, shy = result
            i = numbers[answer.site]
            if shy and name == SCORE:
                private[i] = reply
            else:
                yield i, (reply if name in (SCORE, PATH) else (own, reply))
        if len(private) >= self._limits.least:
            self.withheld.update(private)
            yield from private.items()
        else:
            few = f"its figures are for sums of {self._limits.least} sites or more"
            missing |= {self._names[i]: few for i in private}
        if self._insists and call.purpose != "evaluate":
            _check_willing(call.t, name, list(heads), missing)
        self._record(name, list(heads), missing)

    def find_scales(self, data: Federation) -> Scales:
        """Finds the scales of what all sites train on, from their sums; each of them is needed."""
        mean = exchange.add_up(self._ask_all(exchange.MEANS, ()))
        variance = exchange.add_up(self._ask_all(exchange.SQUARES, (mean,)))
        return exchange.complete(data, mean, variance)

    def _ask_all(self, name: str, brought: tuple[Tensor, ...]) -> list[Any]:
        """Asks every site before the first round; none may be missing."""
        heads = {site: self._outside(i, name) for i, site in enumerate(self._names)}
        messages = {s: codec.write(head, ((), (), brought, ())) for s, head in heads.items()}
        replies: dict[str, Any] = {}
        for answer in self._listen(messages, waits=True):
            forms = self._forms.find(name, exchange.PURPOSE)
            result, why = self._open(answer, heads[answer.site], forms)
            if why:
                raise IsthmusError(
                    f"no sums from {answer.site} ({why}); expected those of all sites, to scale "
                    "inputs; wait for it, or set scaled_by to client in the schema"
                )
            replies[answer.site] = result[0]
        return [replies[site] for site in self._names]

    def ask_to_join(
        self, setting: RunContext, t: int, parts: Mapping[str, JoinParts]
    ) -> Iterator[tuple[str, Any, str]]:
        """Has newcomers build their models after t rounds; yields what each measured, or why not.

        A newcomer may keep its figures: then there is nothing, and no reason.
        """
        heads = {site: self._outside(setting.first, JOIN, t) for site in parts}
        messages = {
            site: codec.write(heads[site], (*part, self.scales)) for site, part in parts.items()
        }
        for answer in self._listen(messages, waits=False):
            forms = self._forms.find(JOIN, newcomers.PURPOSE)
            result, why = self._open(answer, heads[answer.site], forms)
            yield answer.site, None if why else result[0], why

    def _outside(self, i: int, name: str, t: int = 0, own: str = "") -> CallHead:
        """Makes the head of a call that belongs to no round."""
        token = secrets.token_hex(DIGEST)
        purpose = {END: "", JOIN: newcomers.PURPOSE}.get(name, exchange.PURPOSE)
        return CallHead(self._run, i, name, purpose, t, 0, None, token, own, own, VERSION)

    def send_end(self, t: int, own: Mapping[int, Tensor]) -> list[str]:
        """Tells all sites that the run is over; names those that did not hear it."""
        heads = {}
        for i, site in enumerate(self._names):
            heads[site] = self._outside(i, END, t, name_state(own[i]) if i in own else "")
        messages = {site: codec.write(head) for site, head in heads.items()}
        deaf = set(heads)
        for answer in self._listen(messages, waits=True):
            _, why = self._open(answer, heads[answer.site], [Form(END, "", (), ())])
            deaf -= set() if why else {answer.site}
        return sorted(deaf)

    def describe(self, why: str = "") -> str:
        """Says who computes."""
        return f"sites: {len(self._names)} of them, each at its data"

    def watch(self) -> Callable[[], Mapping[str, float]]:
        """Measures nothing: sites do not say where their time goes."""
        return dict

    def close(self) -> None:
        """Holds nothing."""

    def _head(self, setting: RunContext, call: Call, name: str, request: Request) -> CallHead:
        accepted = "" if isinstance(request.own, InitialState) else name_state(request.own)
        committed = self._committed.setdefault(request.i, accepted)
        return CallHead(
            run=self._run,
            client=setting.first or request.i,  # each newcomer joins as if it were the only one
            function=name,
            purpose=call.purpose,
            t=call.t,
            turn=call.turn,
            choice=call.choice,
            call=secrets.token_hex(DIGEST),
            committed=committed,
            accepted=accepted,
            version=VERSION,
        )

    def _listen(self, messages: Mapping[str, bytes], waits: bool) -> Iterator[SiteAnswer]:
        """Yields answers until all came, the deadline is over, or a quorum's grace is.

        An evaluation `waits` for all: it changes nothing, and what it misses shows in its figures.
        Where the quorum is nobody, a grace is all there is.
        """
        limits, came = self._limits, 0
        needed = len(messages) if waits else math.ceil(limits.quorum * len(messages))
        end = self._clock() + (limits.deadline if needed else min(limits.grace, limits.deadline))
        left = set(messages)
        answers = self._transport.ask(messages, limits.deadline)
        for answer in answers:
            if answer is not None and answer.site in left:
                left.remove(answer.site)
                came += answer.message is not None
                if came == needed and left:
                    end = min(end, self._clock() + limits.grace)
                yield answer
            if not left or self._clock() > end:
                break
        close = getattr(answers, "close", None)
        if close is not None:
            close()
        yield from (SiteAnswer(site, None, "late") for site in sorted(left))

    def _open(self, answer: SiteAnswer, head: CallHead, forms: Sequence[Form]) -> tuple[Any, str]:
        """Reads an answer: reply, own state, whether it is private; or why there is none."""
        if answer.message is None:
            return None, answer.why or "it did not answer"
        try:
            reply: ReplyHead = codec.read_head(answer.message, ReplyHead, self._forms.largest)
            if reply.call != head.call:
                return None, "it answered another call"
            if reply.refused:
                return None, f"{REFUSED}{REFUSALS.get(reply.refused, 'it did not say why')}"
            own = read_state_name(reply.own)
        except MessageError:
            return None, "its answer was damaged, too large or of another version"
        for form in forms:
            try:
                tensors = codec.read_tensors(answer.message, form.reply)
                return (tensors, own, reply.private), ""
            except MessageError:
                continue
        return None, "its answer had tensors of other shapes, or numbers that are not finite"

    def _record(self, name: str, asked: list[str], missing: dict[str, str]) -> None:
        number = self.outcomes[-1].call + 1 if self.outcomes else 1
        self.outcomes += (
            CallOutcome(number, name, self._names.index(site), missing.get(site, ANSWERED))
            for site in asked
        )
        for why in dict.fromkeys(missing.values()):
            who = ", ".join(site for site in asked if missing.get(site) == why)
            self.notes.append(f"{name}: no answer from {who}: {why}")


def _check_willing(t: int, name: str, asked: list[str], missing: Mapping[str, str]) -> None:
    """Ends a run whose sites all refuse: its rounds would be done, and nothing learned."""
    failed = f"{REFUSED}{REFUSALS['failed']}"
    why = [missing.get(site, "") for site in asked]
    if asked and all(text.startswith(REFUSED) and text != failed for text in why):
        reasons = "; ".join(dict.fromkeys(text.removeprefix(REFUSED) for text in why))
        raise IsthmusError(
            f"round {t + 1}, {name}: all sites that were asked refused: {reasons}; expected the "
            "version, the experiment and the rounds that they know; see Operations in "
            "docs/deployment.md, then `isthmus serve resume`"
        )


def name_state(handle: Tensor) -> str:
    """Writes the digest that stands for an own state as text."""
    return bytes(handle.tolist()).hex()


def read_state_name(text: str) -> Any:
    """Reads a digest as what stands for an own state; an empty one stands for none."""
    if not text:
        return ()
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        digest = b""
    if len(digest) != DIGEST:
        raise MessageError("an own state's name is no digest")
    return torch.tensor(list(digest), dtype=torch.uint8)
