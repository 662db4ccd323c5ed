"""The cohort of a round, as the server's side of a method sees it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from isthmus import tree
from isthmus.context import Call, ClientFunction, InitialState, Request, RunContext
from isthmus.data.federation import pool
from isthmus.errors import IsthmusError
from isthmus.formulas.vector import total_variance
from isthmus.method import Delivery, Each, State
from isthmus.models.flat import Flat
from isthmus.shelf import Shelf

CLIENTS_AT_A_TIME = 256  # clients whose scores are summed up at a time


class DivergenceError(IsthmusError):
    """Raised for the client that ended with numbers that are not finite."""


class NobodyAnswered(Exception):  # noqa: N818 - it is no error
    """Ends a round in which every reply was lost: the server keeps its state."""


@dataclass
class Round:
    """One round in progress: what it reads, what it changed, what it cost."""

    context: RunContext
    t: int
    stored: Mapping[int, State]
    changed: dict[int, State] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)
    answered: set[int] = field(default_factory=set)
    down: int = 0  # bytes
    up: int = 0
    head_variance: float | None = None  # of what the clients made of the last layer
    turns: Counter[str] = field(default_factory=Counter)
    shelf: Shelf = field(default_factory=Shelf)
    notes: list[str] = field(default_factory=list)

    def own(self, i: int) -> State | InitialState:
        """Return what client i holds; for one that never took part, what stands for it."""
        for states in (self.changed, self.stored):
            if i in states:
                return states[i]
        return InitialState(self.context.first + i)


class Clients:
    """A handle on some clients: their server's only way to reach them."""

    def __init__(self, ids: Sequence[int], round: Round):
        self.ids = list(ids)
        self.t = round.t
        self.task = round.context.task
        self.total = self.task.clients  # N
        self.rounds = self.task.rounds  # R
        self.shelf = round.shelf  # what the server keeps beside its state
        self.newcomers = round.context.first > 0  # whether they took part in no round
        self._round = round

    @property
    def all(self) -> "Clients":
        """All N clients."""
        return Clients(range(self.total), self._round)

    def only(self, ids: Sequence[int]) -> "Clients":
        """Return these clients."""
        return Clients(ids, self._round)

    def note(self, text: str) -> None:
        """Show a note to the user, and keep it in the records."""
        self._round.notes.append(text)

    def map(
        self, f: ClientFunction, *shared: State, each: Each = None, purpose: str = "train"
    ) -> tuple[Tensor, Any]:
        """Run f(client, own, *shared) -> (own, reply) for every client of the cohort.

        Return the ids of the clients that answered, [K], and their replies, stacked. `each` is one
        more message for every client: it has a leading axis as long as the cohort, or is a function
        of a client's id, called when its turn comes; a newcomer's id is N or more. A call of
        another purpose has random streams of its own: what is trained besides goes as it would have
        gone without it.
        """
        round = self._round
        call = Call(f, shared, self.t, purpose, round.turns[purpose])
        round.turns[purpose] += 1
        round.asked.update(self.ids)
        round.down += len(self.ids) * tree.nbytes(shared)
        replies = {}
        requests = self._requests(each, range(len(self.ids)))
        for i, (own, reply) in round.context.engine.run(round.context, call, requests):
            self._check(i, f, own, reply)
            if own != ():
                round.changed[i] = own
            round.up += tree.nbytes(reply)
            replies[i] = reply
        round.answered.update(replies)
        if not replies:
            raise NobodyAnswered(f"none of {len(self.ids)} clients answered in round {self.t + 1}")
        ids = sorted(replies)  # an order that does not depend on who came first
        stacked = tree.stack([replies[i] for i in ids])
        heads = last_layers(self.task.model, stacked)
        if heads is not None:
            round.head_variance = float(total_variance(heads.double()))
        return torch.tensor(ids), stacked

    def pool(self, f: ClientFunction, *shared: State) -> Any:
        """Run f(client, own, *shared) -> (own, reply) for one client, and return its reply.

        That client trains on as many examples as these clients have together, drawn from those of
        all N. Data leave their owners for it: a method that calls this is not federated, and says
        so in `about`. Nobody is asked, and no message is counted.
        """
        round = self._round
        federation, seed = round.context.federation, self.task.seed
        size = sum(federation.sizes(i)[0] for i in self.ids)
        context = round.context._replace(federation=pool(federation, size, seed, self.t))
        call = Call(f, shared, self.t, "train", round.turns["train"])
        round.turns["train"] += 1
        for i, (own, reply) in context.engine.run(context, call, iter([Request(0, (), ())])):
            self._check(i, f, own, reply)
            return reply
        raise NobodyAnswered(f"training on the pooled data gave nothing in round {self.t + 1}")

    def visit(
        self,
        f: ClientFunction,
        delivery: Delivery,
        choice: int | None = None,
        purpose: str = "evaluate",
        block: int = CLIENTS_AT_A_TIME,
    ) -> Iterator[dict[int, Any]]:
        """Run f(client, own, *received) for every client, and change nothing.

        Yield the results by client, a block of clients at a time, in their order, without those
        that do not answer. `choice` is the point of a path that all of them take, where there is
        one for all.
        """
        round = self._round
        call = Call(f, delivery.shared, self.t, purpose, 0, choice)
        for start in range(0, len(self.ids), block):
            span = range(start, min(start + block, len(self.ids)))
            requests = self._requests(delivery.each, span)
            results = dict(round.context.engine.run(round.context, call, requests))
            there = (self.ids[k] for k in span if self.ids[k] in results)
            yield {i: results[i] for i in there}

    def _requests(self, each: Each, span: range) -> Iterator[Request]:
        federation = self._round.context.federation
        # The largest first, so that none of them is left for the end.
        for k in sorted(span, key=lambda k: -federation.sizes(self.ids[k])[0]):
            yield Request(self.ids[k], self._round.own(self.ids[k]), self._message(each, k))

    def _message(self, each: Each, k: int) -> tuple[State, ...]:
        message = find_message(each, k, self._round.context.first + self.ids[k])
        self._round.down += tree.nbytes(message)
        return message

    def _check(self, i: int, f: ClientFunction, own: State, reply: State) -> None:
        if not tree.finite((own, reply)):
            task = self._round.context.task
            raise DivergenceError(
                f"client {i} diverged in round {self.t + 1}: {getattr(f, '__qualname__', f)} "
                f"returned numbers that are not finite (lr={task.lr_at(self.t):.3g}); lower lr, or "
                "raise batch_size"
            )


def find_message(each: Each, k: int, number: int) -> tuple[State, ...]:
    """Return what the k-th client alone receives, whose number is `number`; or nothing."""
    if each is None:
        return ()
    return (each(number) if callable(each) else tree.row(each, k),)


def last_layers(model: Flat, replies: State) -> Tensor | None:
    """Return the last layers in stacked replies: in models, heads, or a simplex's vertices.

    >>> from torch import nn
    >>> network = Flat(lambda: nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)))
    >>> last_layers(network, (torch.ones(5), torch.zeros(5, 13))).shape
    torch.Size([5, 4])
    """
    body, head = model.body.stop, model.size - model.body.stop
    weight = model.weight.stop - model.weight.start
    for leaf in tree.leaves(replies):
        if leaf.dim() == 2 and leaf.shape[1] == model.size:
            return leaf[:, model.head]
        if leaf.dim() == 2 and leaf.shape[1] == head != body:
            return leaf
        if leaf.dim() == 3 and leaf.shape[2] == weight:  # the vertices of a simplex
            return leaf.mean(1)
    return None
