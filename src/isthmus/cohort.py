"""The cohort of a round, as the server's side of a method sees it."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from isthmus import tree
from isthmus.context import Call, ClientFunction, Fresh, Request, Setting
from isthmus.errors import IsthmusError
from isthmus.evaluation import (
    Evaluation,
    Scoring,
    Walk,
    has_path,
    scores_of,
    selects,
    splits_of,
)
from isthmus.formulas.vector import total_variance
from isthmus.method import State
from isthmus.metrics.score import Figures, Tally, figures, tally
from isthmus.shelf import Shelf

BLOCK = 256  # clients whose scores are summed up at a time

Each = State | Callable[[int], State]  # a message per client: stacked, or as a function of its id


class DivergenceError(IsthmusError):
    """Says which client ended with numbers that are not finite, and when."""


class NobodyAnswered(Exception):  # noqa: N818 - it is no error
    """Ends a round in which every reply was lost: the server keeps its state."""


@dataclass
class Round:
    """One round in progress: what it reads, what it changed, what it cost."""

    setting: Setting
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

    def own(self, i: int) -> State | Fresh:
        """Finds what client i holds; a client that never took part costs nothing until now."""
        for states in (self.changed, self.stored):
            if i in states:
                return states[i]
        return Fresh(i)


class Clients:
    """A handle on some clients: their server's only way to reach them."""

    def __init__(self, ids: Sequence[int], round: Round):
        self.ids = list(ids)
        self.t = round.t
        self.task = round.setting.task
        self.total = self.task.clients  # N
        self.rounds = self.task.rounds  # R
        self.shelf = round.shelf  # what the server keeps beside its state
        self._round = round

    @property
    def all(self) -> "Clients":
        """All N clients."""
        return Clients(range(self.total), self._round)

    def only(self, ids: Sequence[int]) -> "Clients":
        """These clients."""
        return Clients(ids, self._round)

    def note(self, text: str) -> None:
        """Tells the user of something, and the records too."""
        self._round.notes.append(text)

    def map(
        self, f: ClientFunction, *shared: State, each: Each = None, purpose: str = "train"
    ) -> tuple[Tensor, Any]:
        """Runs f(client, own, *shared) -> (own, reply) for every client of the cohort.

        Gives the ids of the clients that answered, [K], and their replies, stacked. `each` is one
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
        for i, (own, reply) in round.setting.engine.run(round.setting, call, requests):
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
        heads = round.setting.method.head(round.setting.task, stacked)
        if heads is not None:
            round.head_variance = float(total_variance(heads.double()))
        return torch.tensor(ids), stacked

    def score(self, common: Tensor | None, *shared: State, each: Each = None) -> Evaluation:
        """Scores, on every client's data, what it would deploy, the shared model, and the path."""
        setting = self._round.setting
        method, splits, path = setting.method, splits_of(setting), has_path(setting)
        names = ["personal", *(["shared"] if common is not None else [])]
        names += [method.points] if path else []
        choice = one_for_all(self.all, shared, each)
        measured = self.all.visits(Scoring(common, splits, path), shared, each, choice)
        scores = tuple(scores_of(names, splits, measured))
        return Evaluation(scores, self._on_server(common), selects(setting))

    def visits(
        self,
        f: ClientFunction,
        shared: tuple[State, ...],
        each: Each,
        choice: int | None,
        purpose: str = "evaluate",
    ) -> Iterator[list[Any]]:
        """Runs f(client, own, *shared) for all clients, and changes nothing; yields results."""
        round = self._round
        call = Call(f, shared, self.t, purpose, 0, choice)
        for start in range(0, len(self.ids), BLOCK):
            span = range(start, min(start + BLOCK, len(self.ids)))
            requests = self._requests(each, span)
            found = dict(round.setting.engine.run(round.setting, call, requests))
            yield [found[self.ids[k]] for k in span]

    def _requests(self, each: Each, span: range) -> Iterator[Request]:
        federation = self._round.setting.federation
        # The largest first, so that nobody waits for one of them in the end.
        for k in sorted(span, key=lambda k: -federation.sizes(self.ids[k])[0]):
            message = self._message(each, k, self.ids[k])
            yield Request(self.ids[k], self._round.own(self.ids[k]), message)

    def _message(self, each: Each, k: int, i: int) -> tuple[State, ...]:
        if each is None:
            return ()
        message = each(i) if callable(each) else tree.row(each, k)
        self._round.down += tree.nbytes(message)
        return (message,)

    def _check(self, i: int, f: ClientFunction, own: State, reply: State) -> None:
        if not tree.finite((own, reply)):
            task = self._round.setting.task
            raise DivergenceError(
                f"client {i} diverged in round {self.t + 1}: {_name(f)} ended with numbers that "
                f"are not finite (lr={task.lr_at(self.t):.3g}); expected a loss that falls; "
                "lower lr, or raise batch_size"
            )

    def _on_server(self, common: Tensor | None) -> Figures | None:
        task, test = self._round.setting.task, self._round.setting.federation.server_test()
        if common is None or not len(test.y):
            return None
        sums: Tally | None = None
        batch = task.calibrated or 1
        some = batch * max(1, 1000 // batch)  # whole mini-batches, about a thousand examples
        for x, y in zip(torch.split(test.x, some), torch.split(test.y, some), strict=True):
            part = tally(task.model.logits(common, x), y, batch=task.calibrated)
            sums = part if sums is None else tree.map(torch.add, sums, part)
        assert sums is not None
        return figures(sums)


def one_for_all(everyone: Clients, shared: tuple[State, ...], each: Each) -> int | None:
    """Finds the point of the path that all clients take, where the selection rule is such a one."""
    setting = everyone._round.setting
    rule = setting.task.rule
    if not selects(setting) or not rule.for_all or rule.split is None:
        return None
    if rule.split not in splits_of(setting):
        raise IsthmusError(
            f"selection={setting.task.selection} chooses on {rule.split} data, and the clients "
            f"have none; expected {rule.split} > 0; set {rule.split}=0.1, or selection=fixed"
        )
    measured = everyone.visits(Walk((rule.split,)), shared, each, None)
    (score,) = scores_of(["path"], (rule.split,), measured)
    return int(rule.cost(score.figures).mean(0).argmin())


def _name(f: ClientFunction) -> str:
    return getattr(f, "__qualname__", repr(f))
