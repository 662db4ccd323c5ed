"""The cohort of a round, as the server's side of a method sees it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isthmus import tree
from isthmus.client import Client, Point
from isthmus.data.federation import Federation
from isthmus.errors import IsthmusError
from isthmus.formulas.vector import total_variance
from isthmus.method import Method, State
from isthmus.metrics.score import Figures, Pooled, Tally, figures, pooled, tally
from isthmus.shelf import Shelf
from isthmus.task import Task

BLOCK = 256  # clients whose scores are summed up at a time

ClientFunction = Callable[..., Any]  # f(client, own, *received)
Each = State | Callable[[int], State]  # a message per client: stacked, or as a function of its id


class DivergenceError(IsthmusError):
    """Says which client ended with numbers that are not finite, and when."""


class NobodyAnswered(Exception):  # noqa: N818 - it is no error
    """Ends a round in which every reply was lost: the server keeps its state."""


class Call(NamedTuple):
    """One client function, to be run for some clients."""

    function: ClientFunction
    shared: tuple[State, ...]  # what every client receives
    t: int
    purpose: str  # names the random streams: "train", "evaluate", or as `map` was told
    turn: int  # how many calls of this purpose came before it in the same round
    choice: int | None = None  # the point that all clients take, where there is one for all


class Fresh(NamedTuple):
    """Stands for what a client holds before it takes part: it is made where it is needed."""

    number: int  # the client's, or beyond all of them that of a newcomer


class Request(NamedTuple):
    """What one client brings to a call: who it is, what it holds, what it alone receives."""

    i: int
    own: State | Fresh
    each: tuple[State, ...]  # empty, or one message

    def held(self, setting: "Setting") -> State:
        """Gives what the client holds."""
        if isinstance(self.own, Fresh):
            return setting.method.own(setting.task, self.own.number)
        return self.own


class Engine(Protocol):
    """Runs a client function for clients, anywhere; not every one need answer."""

    notes: list[str]  # what happened since somebody looked

    def run(
        self, setting: "Setting", call: Call, requests: Iterator[Request]
    ) -> Iterator[tuple[int, Any]]:
        """Yields (client, what the function returned) for those that answer."""
        ...

    def close(self) -> None:
        """Lets go of whatever the engine holds; it may run again."""
        ...


class Setting(NamedTuple):
    """All that stays the same during a run."""

    method: Method
    task: Task
    federation: Federation
    engine: Engine
    newcomers: Federation | None = None  # clients that are kept out of training
    first: int = 0  # the number of the federation's first client; newcomers come after all others

    def kind(self, i: int) -> int:
        """Gives the kind of the federation's client i."""
        return self.method.kind(self.first + i)


class Score(NamedTuple):
    """How the models of one kind did on one part of every client's data."""

    model: str  # "personal", "shared", and what the method calls the points of its path
    split: str  # "validation" or "test"
    at: NDArray[np.float64]  # [N, D], or [N, L, D] for a path: where the model lies; D may be 0
    figures: Figures  # each [N], or [N, L] for a path
    pooled: Pooled | None  # over all clients' examples together; None for a path


class Evaluation(NamedTuple):
    """All scores after a round, for all clients; and the shared model on the server's test set."""

    scores: tuple[Score, ...]
    server: Figures | None
    chosen: bool = False  # personal models were chosen along a path

    def __call__(self, model: str, split: str = "test") -> Score:
        """Finds the score of one kind of model on one split."""
        for score in self.scores:
            if (score.model, score.split) == (model, split):
                return score
        raise KeyError((model, split))


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


def has_path(setting: Setting) -> bool:
    """Tells whether a method has a path to draw."""
    return type(setting.method).path is not Method.path


def selects(setting: Setting) -> bool:
    """Tells whether personal models are chosen along a path."""
    return has_path(setting) and setting.method.selects


def splits_of(setting: Setting) -> tuple[str, ...]:
    """Names the parts of the clients' data that models are scored on."""
    return ("validation", "test") if setting.federation.sizes(0)[1] else ("test",)


def measure(client: Client, model: Tensor | Point | None, splits: tuple[str, ...]) -> Any:
    """Gives a model's place, and its sums on each split; of a path, those of every point."""
    assert model is not None
    at, w = model if isinstance(model, Point) else (model.new_zeros(0), model)
    return at, client.tallies(w, *splits)


@dataclass(frozen=True)
class Scoring:
    """What evaluation asks of a client: its personal model, the shared model and the path."""

    common: Tensor | None
    splits: tuple[str, ...]
    path: bool

    def __call__(self, client: Client, own: State, *received: State) -> Any:
        """Measures the models in this order, those there are; none is measured twice."""
        method = client.method
        model = method.personal(client, own, *received)
        walked = client.walked
        if walked is not None and walked.point is not model:
            walked = None
        path: tuple[Any, ...] = ()
        if self.path:
            way = method.path(client, own, *received) if walked is None else walked.path
            path = (measure(client, way, self.splits),)
        if path and walked is not None:
            index = walked.chosen[None].cpu()
            sums = tree.map(lambda rows: rows.index_select(0, index)[0], path[0][1])
            personal = walked.point.at, sums
        else:
            personal = measure(client, model, self.splits)
        if self.common is None:
            return personal, *path
        if path and method.departs:
            shared = self.common.new_zeros(0), tree.map(itemgetter(0), path[0][1])
        else:
            shared = measure(client, self.common.to(client.task.w0.device), self.splits)
        return personal, shared, *path


@dataclass(frozen=True)
class Walk:
    """What a choice for all clients asks of a client: its path."""

    splits: tuple[str, ...]

    def __call__(self, client: Client, own: State, *received: State) -> Any:
        """Measures all points."""
        return (measure(client, client.method.path(client, own, *received), self.splits),)


def scores_of(
    names: Sequence[str], splits: tuple[str, ...], measured: Iterable[list[Any]]
) -> Iterator[Score]:
    """Turns what `measure` gave for each client and each of the named models into scores.

    The sums of a block are divided before the next block is visited: they are much larger.
    """
    blocks: list[Any] = []
    total: Any = None
    for block in measured:
        stacked = tree.stack(block)
        blocks.append([(at.double().numpy(), [*map(figures, sums)]) for at, sums in stacked])
        added = tree.map(lambda rows: rows.sum(0), tuple(sums for _, sums in stacked))
        total = added if total is None else tree.map(torch.add, total, added)
    for m, model in enumerate(names):
        at = np.concatenate([block[m][0] for block in blocks])
        for s, split in enumerate(splits):
            columns = zip(*(block[m][1][s] for block in blocks), strict=True)
            found = Figures(*(np.concatenate(column) for column in columns))
            yield Score(model, split, at, found, None if at.ndim > 2 else pooled(total[m][s]))


def one_for_all(everyone: Clients, shared: tuple[State, ...], each: Each) -> int | None:
    """Finds the point of the path that all clients take, where the selection rule is such a one."""
    setting = everyone._round.setting
    selection = setting.task.selection
    if not selects(setting) or selection not in ("common", "oracle-common"):
        return None
    splits = splits_of(setting)
    if selection == "common" and "validation" not in splits:
        raise IsthmusError(
            "selection=common chooses on validation data, and the clients have none; "
            "expected validation > 0; set validation=0.1, or selection=fixed"
        )

    measured = everyone.visits(Walk(splits), shared, each, None)
    found = {score.split: score.figures for score in scores_of(["path"], splits, measured)}
    if selection == "common":
        return int(found["validation"].loss.mean(0).argmin())
    return int(found["test"].top1.mean(0).argmax())


def _name(f: ClientFunction) -> str:
    return getattr(f, "__qualname__", repr(f))
