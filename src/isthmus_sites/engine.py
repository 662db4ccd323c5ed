"""The engine whose clients are sites: a call is a message, an own state is known by its digest."""

import math
import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from isthmus.context import Call, CallOutcome, Engine, InitialState, Request, RunContext
from isthmus.data.federation import Federation
from isthmus.data.scaling import Scales
from isthmus.errors import IsthmusError
from isthmus.method import State
from isthmus.run import newcomers
from isthmus_sites import codec, exchange
from isthmus_sites.codec import VERSION, CallHead, MessageError, ReplyHead
from isthmus_sites.consent import digest_experiment
from isthmus_sites.forms import END, JOIN, PATH, SCORE, Forms, name_function
from isthmus_sites.protocol import REFUSALS, ServePlan, SiteAnswer, Transport, describe_outcome

DIGEST = 8  # bytes
ANSWERED, REFUSED = "answered", "refused:"

# What a newcomer gets: what all do, what it alone does, the shared model if there is one.
JoinParts: TypeAlias = tuple[tuple[State, ...], tuple[State, ...], tuple[State, ...]]
# A site, what it replied if it did, and how the call ended.
Reply: TypeAlias = tuple[str, Any, ReplyHead, str]
NO_REPLY = ReplyHead("")


class SitesEngine(Engine):
    """Sends calls to sites and yields what they answer within the waits of a plan."""

    handle = torch.zeros(DIGEST, dtype=torch.uint8)  # the digest of a state that a site holds

    def __init__(
        self,
        transport: Transport,
        names: Sequence[str],
        forms: Forms,
        plan: ServePlan,
        clock: Callable[[], float] = time.monotonic,
        insists: bool = False,
    ):
        self.notes: list[str] = []
        self.outcomes: list[CallOutcome] = []
        self.withheld: set[int] = set()
        self.scales: tuple[Tensor, ...] = ()  # of all sites' inputs, where they scale them alike
        self._transport = transport
        self._names = names
        self._run = digest_experiment(plan.study)
        self._forms = forms
        self._plan = plan
        self._clock = clock
        self._insists = insists  # a round that all sites refuse ends the run
        self._round = -1
        self._committed: dict[int, str] = {}  # own states after the last completed round

    def run(
        self, setting: RunContext, call: Call, requests: Iterator[Request]
    ) -> Iterator[tuple[int, Any]]:
        """Yield (client, what its function returned) for sites that answer in time."""
        if call.t != self._round:
            self._round, self._committed = call.t, {}
            self.outcomes, self.withheld = [], set()
        name, brought = name_function(setting.method, call.function)
        measures = name in (SCORE, PATH)
        heads: dict[str, CallHead] = {}
        contents: dict[str, Any] = {}
        for request in requests:
            site = self._names[request.i]
            heads[site] = self._head(setting, call, name, request)
            contents[site] = (call.shared, request.each, brought, self.scales)
        outcomes = dict.fromkeys(heads, "")
        private: dict[int, Any] = {}
        for site, reply, head, outcome in self._call(heads, contents, waits=measures):
            i, outcomes[site] = self._names.index(site), outcome
            if outcome == ANSWERED and head.private and name == SCORE:
                private[i] = reply
            elif outcome == ANSWERED:
                yield i, reply if measures else (read_state_name(head.own), reply)
        if len(private) >= self._plan.least:
            self.withheld.update(private)
            yield from private.items()
        else:
            outcomes |= {self._names[i]: "private" for i in private}
        if self._insists and call.purpose != "evaluate":
            _check_willing(call.t, name, outcomes)
        self._record(name, outcomes)

    def find_scales(self, data: Federation) -> Scales:
        """Return the scales of what all sites train on, from the sums of each of them."""
        mean = exchange.add_up(self._ask_all(exchange.MEANS, ()))
        variance = exchange.add_up(self._ask_all(exchange.SQUARES, (mean,)))
        return exchange.complete(data, mean, variance)

    def _ask_all(self, name: str, brought: tuple[Tensor, ...]) -> list[Any]:
        """Ask every site before the first round; none may be missing."""
        heads = {site: self._outside(i, name) for i, site in enumerate(self._names)}
        replies: dict[str, Any] = {}
        for site, reply, _, outcome in self._call(heads, ((), (), brought, ()), waits=True):
            if outcome != ANSWERED:
                raise IsthmusError(
                    f"no sums from {site} ({describe_outcome(outcome)}), and inputs are scaled by "
                    "those of all sites; wait for it, or set scaled_by to client in the schema"
                )
            replies[site] = reply
        return [replies[site] for site in self._names]

    def ask_to_join(
        self, setting: RunContext, t: int, parts: Mapping[str, JoinParts]
    ) -> Iterator[tuple[str, Any, str]]:
        """Have newcomers build their models after t rounds; yield what each measured, and how.

        A newcomer may keep its figures: then nothing is measured, although it answered.
        """
        heads = {site: self._outside(setting.first, JOIN, t) for site in parts}
        contents = {site: (*part, self.scales) for site, part in parts.items()}
        for site, reply, _, outcome in self._call(heads, contents, waits=False):
            yield site, reply, outcome

    def send_end(self, t: int, own: Mapping[int, Tensor]) -> None:
        """Tell all sites that the run is over."""
        heads = {}
        for i, site in enumerate(self._names):
            heads[site] = self._outside(i, END, t, name_state(own[i]) if i in own else "")
        for _ in self._call(heads, (), waits=True):
            pass

    def describe(self, why: str = "") -> str:
        """Describe who computes."""
        return f"sites: {len(self._names)} of them, each at its data"

    def watch(self) -> Callable[[], Mapping[str, float]]:
        """Measure nothing: sites do not report where their time goes."""
        return dict

    def _outside(self, i: int, name: str, t: int = 0, own: str = "") -> CallHead:
        """Return the head of a call that belongs to no round."""
        token = secrets.token_hex(DIGEST)
        purpose = {END: "", JOIN: newcomers.PURPOSE}.get(name, exchange.PURPOSE)
        return CallHead(self._run, i, name, purpose, t, 0, None, token, own, own, VERSION)

    def _head(self, setting: RunContext, call: Call, name: str, request: Request) -> CallHead:
        accepted = "" if isinstance(request.own, InitialState) else name_state(request.own)
        return CallHead(
            run=self._run,
            client=setting.first or request.i,  # each newcomer joins as if it were the only one
            function=name,
            purpose=call.purpose,
            t=call.t,
            turn=call.turn,
            choice=call.choice,
            call=secrets.token_hex(DIGEST),
            committed=self._committed.setdefault(request.i, accepted),
            accepted=accepted,
            version=VERSION,
        )

    def _call(self, heads: Mapping[str, CallHead], contents: Any, waits: bool) -> Iterator[Reply]:
        """Send calls to sites; yield a reply, or why there is none, for each of them.

        `contents` is what all sites get, or by site what each of them gets.
        """
        each = contents if isinstance(contents, dict) else dict.fromkeys(heads, contents)
        messages = {site: codec.write(head, each[site]) for site, head in heads.items()}
        for answer in self._listen(messages, waits):
            yield answer.site, *self._open(answer, heads[answer.site])

    def _listen(self, messages: Mapping[str, bytes], waits: bool) -> Iterator[SiteAnswer]:
        """Yield answers until all came, the deadline is over, or a quorum's grace is.

        An evaluation `waits` for all: it changes nothing, and what it misses shows in its figures.
        With an empty quorum only the grace counts.
        """
        plan, came = self._plan, 0
        needed = len(messages) if waits else math.ceil(plan.quorum * len(messages))
        end = self._clock() + (plan.deadline if needed else min(plan.grace, plan.deadline))
        left = set(messages)
        answers = self._transport.ask(messages, plan.deadline)
        for answer in answers:
            if answer is not None and answer.site in left:
                left.remove(answer.site)
                came += answer.message is not None
                if came == needed and left:
                    end = min(end, self._clock() + plan.grace)
                yield answer
            if not left or self._clock() > end:
                break
        if isinstance(answers, Generator):
            answers.close()
        yield from (SiteAnswer(site, None, "late") for site in sorted(left))

    def _open(self, answer: SiteAnswer, head: CallHead) -> tuple[Any, ReplyHead, str]:
        """Return the tensors of an answer, its head, and how the call ended."""
        if answer.message is None:
            return None, NO_REPLY, answer.why or "absent"
        try:
            reply: ReplyHead = codec.read_head(answer.message, ReplyHead, self._forms.largest)
            read_state_name(reply.own)
        except MessageError:
            return None, NO_REPLY, "failed:message"
        if reply.call != head.call:
            return None, NO_REPLY, "failed:call"
        if reply.refused:
            reason = reply.refused if reply.refused in REFUSALS else "unknown"
            return None, reply, f"{REFUSED}{reason}"
        for form in self._forms.find(head.function, head.purpose):
            try:
                return codec.read_tensors(answer.message, form.reply), reply, ANSWERED
            except MessageError:
                continue
        return None, reply, "failed:form"

    def _record(self, name: str, outcomes: Mapping[str, str]) -> None:
        number = self.outcomes[-1].call + 1 if self.outcomes else 1
        self.outcomes += (
            CallOutcome(number, name, self._names.index(site), outcome)
            for site, outcome in outcomes.items()
        )
        for outcome in dict.fromkeys(outcomes.values()):
            if outcome != ANSWERED:
                who = ", ".join(site for site, each in outcomes.items() if each == outcome)
                self.notes.append(f"{name}: no answer from {who}: {describe_outcome(outcome)}")


def _check_willing(t: int, name: str, outcomes: Mapping[str, str]) -> None:
    """End a run whose sites all refuse: its rounds would be done, and nothing learned."""
    failed = f"{REFUSED}failed"
    if outcomes and all(code.startswith(REFUSED) and code != failed for code in outcomes.values()):
        reasons = "; ".join(dict.fromkeys(map(describe_outcome, outcomes.values())))
        raise IsthmusError(
            f"round {t + 1}, {name}: all sites that were asked refused: {reasons}; see Operations "
            "in docs/deployment.md, then call `isthmus serve resume`"
        )


def name_state(handle: Tensor) -> str:
    """Return the digest that stands for an own state as text."""
    return bytes(handle.tolist()).hex()


def read_state_name(text: str) -> Any:
    """Return the handle of an own state from its digest; an empty digest stands for none."""
    if not text:
        return ()
    if len(text) != 2 * DIGEST:
        raise MessageError("an own state's name is no digest")
    return torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8)
