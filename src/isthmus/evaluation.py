"""How models did: scores on every client's data, and what evaluation asks of a client.

All of it starts from `Method.deliver`: what clients get to build their personal models from.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isthmus import tree
from isthmus.client import Client, Point
from isthmus.cohort import CLIENTS_AT_A_TIME, Clients, NobodyAnswered, Round
from isthmus.context import RunContext
from isthmus.errors import IsthmusError
from isthmus.method import Delivery, State
from isthmus.metrics.score import Figures, Pooled, Tally, figures, pool, tally

MODELS_IN_MEMORY_BYTES = 64 * 2**20  # bytes of personal models that are looked at together


class Score(NamedTuple):
    """How the models of one kind did on one part of the data of every client that answered."""

    model: str  # "personal", "shared", and what the method calls the points of its path
    split: str  # "validation" or "test"
    clients: NDArray[np.int64]  # [A]: who answered; in a simulation all do
    at: NDArray[np.float64]  # [A, D], or [A, L, D] for a path: where the model lies; D may be 0
    figures: Figures  # each [A], or [A, L] for a path
    pooled: Pooled | None  # over all their examples together; None for a path


class Evaluation(NamedTuple):
    """All scores after a round, of all clients that are evaluated; and on the server's test set."""

    scores: tuple[Score, ...]
    server: Figures | None
    chosen: bool = False  # personal models were chosen along a path

    def __call__(self, model: str, split: str = "test") -> Score:
        """Find the score of one kind of model on one split."""
        for score in self.scores:
            if (score.model, score.split) == (model, split):
                return score
        raise KeyError((model, split))


Keep = Callable[[int, float, Point], None]  # a client, its validation loss, its personal model


def evaluate(round: Round, server: State, keep: Keep | None = None) -> Evaluation:
    """Score what every client would deploy, the shared model, and the path, on all data.

    Where only some clients are evaluated, a choice for all is made by theirs too. `keep`, if any,
    gets each client's personal model.
    """
    context = round.context
    everybody = range(context.task.clients)
    clients = Clients(everybody if context.evaluated is None else context.evaluated, round)
    delivery = context.method.deliver(server, clients)
    scores = score(context, clients, delivery, keep)
    return Evaluation(scores, score_on_server(context, delivery.common), is_chosen(context))


def score(
    context: RunContext, clients: Clients, delivery: Delivery, keep: Keep | None = None
) -> tuple[Score, ...]:
    """Score models on these clients' data: personal, shared, and along the path."""
    path, splits = context.method.path(), splits_of(context)
    names = ["personal", *(["shared"] if delivery.common is not None else [])]
    names += [] if path is None else [path.name]
    choice = choose_for_all(context, clients, delivery)
    scoring = Scoring(delivery.common, splits)
    if keep is None:
        measured = clients.visit(scoring, delivery, choice)
    else:
        some = max(1, MODELS_IN_MEMORY_BYTES // context.task.w0.nbytes)
        both = clients.visit(
            DeployAndMeasure(scoring), delivery, choice, block=min(some, CLIENTS_AT_A_TIME)
        )
        measured = report_models(both, keep)
    return tuple(collect(names, splits, measured))


def report_models(measured: Iterable[Mapping[int, Any]], keep: Keep) -> Iterator[dict[int, Any]]:
    """Pass each personal model to `keep`; yield what was measured."""
    for block in measured:
        for i, (point, ((_, (validation, *_)), *_)) in block.items():
            keep(i, float(validation.loss / validation.n), point)
        yield {i: sums for i, (_, sums) in block.items()}


def score_on_server(context: RunContext, common: Tensor | None) -> Figures | None:
    """Score the shared model on the server's own test set, where there are both."""
    task, test = context.task, context.federation.server_test()
    if common is None or not len(test.y):
        return None
    sums: Tally | None = None
    batch = task.calibrated or 1
    some = batch * max(1, 1000 // batch)  # whole mini-batches, about a thousand examples
    for x, y in zip(torch.split(test.x, some), torch.split(test.y, some), strict=True):
        part = tally(task.model.logits(common, x), y, batch=task.calibrated, among=test.y)
        sums = part if sums is None else tree.map(torch.add, sums, part)
    assert sums is not None
    return figures(sums)


def choose_for_all(context: RunContext, clients: Clients, delivery: Delivery) -> int | None:
    """Return the point of the path that all clients take, where the rule chooses one for all."""
    path, rule = context.method.path(), context.task.rule
    if path is None or not path.chosen or not rule.for_all or rule.split is None:
        return None
    if rule.split not in splits_of(context):
        raise IsthmusError(
            f"selection={context.task.selection} chooses on {rule.split} data, and the clients "
            f"have none; set {rule.split}=0.1, or selection=fixed"
        )
    measured = clients.visit(MeasurePath((rule.split,)), delivery)
    (along,) = collect([path.name], (rule.split,), measured)
    return int(rule.cost(along.figures).mean(0).argmin())


def is_chosen(context: RunContext) -> bool:
    """Whether personal models are chosen along a path."""
    path = context.method.path()
    return path is not None and path.chosen


def splits_of(context: RunContext) -> tuple[str, ...]:
    """Name the parts of the clients' data that models are scored on."""
    data = context.federation
    chosen_on = any(data.sizes(i)[1] for i in range(len(data)))  # at a site only one client has any
    return ("validation", "test") if chosen_on else ("test",)


def measure(client: Client, model: Tensor | Point, splits: tuple[str, ...]) -> Any:
    """Return a model's place, and its sums on each split; of a path, those of every point."""
    at, w = model if isinstance(model, Point) else (model.new_zeros(0), model)
    return at, client.tallies(w, *splits)


@dataclass(frozen=True)
class Scoring:
    """What evaluation asks of a client: its personal model, the shared model and the path."""

    common: Tensor | None
    splits: tuple[str, ...]

    def __call__(self, client: Client, own: State, *received: State) -> Any:
        """Build the personal model and measure all models."""
        return self.score(client, *self.build(client, own, *received), *received)

    def build(self, client: Client, own: State, *received: State) -> tuple[State, Tensor | Point]:
        """Return what the client holds, and the model that it deploys."""
        return own, client.method.personal(client, own, *received)

    def score(self, client: Client, own: State, model: Tensor | Point, *received: State) -> Any:
        """Measure the models in this order, those there are; none is measured twice."""
        path, selected = client.method.path(), client.selection
        if selected is not None and selected.point is not model:
            selected = None
        along: tuple[Any, ...] = ()
        if path is not None:
            points = path.points(client, own, *received) if selected is None else selected.path
            along = (measure(client, points, self.splits),)
        if along and selected is not None:
            index = selected.chosen[None].cpu()
            sums = tree.map(lambda rows: rows.index_select(0, index)[0], along[0][1])
            personal = selected.point.at, sums
        else:
            personal = measure(client, model, self.splits)
        if self.common is None:
            return personal, *along
        common = self.common.to(client.task.w0.device)
        if path is not None and path.from_shared:
            shared = self.common.new_zeros(0), tree.map(itemgetter(0), along[0][1])
        elif is_deployed(common, model):
            shared = self.common.new_zeros(0), personal[1]
        else:
            shared = measure(client, common, self.splits)
        return personal, shared, *along


def is_deployed(common: Tensor, model: Tensor | Point) -> bool:
    """Whether a client deploys the shared model as it is, where looking costs nothing."""
    of_many = torch._C._are_functorch_transforms_active()  # as in `stacked`
    return common.is_cpu and not of_many and torch.equal(common, place_model(model).w)


@dataclass(frozen=True)
class DeployAndMeasure:
    """What evaluation asks of a client, and the model that it deploys."""

    measuring: Scoring

    def __call__(self, client: Client, own: State, *received: State) -> tuple[Point, Any]:
        """Return its model, and what is asked."""
        own, model = self.measuring.build(client, own, *received)
        return place_model(model), self.measuring.score(client, own, model, *received)


def place_model(model: Tensor | Point) -> Point:
    """Return a model with its place; one that lies on no path has none."""
    return model if isinstance(model, Point) else Point(model.new_zeros(0), model)


@dataclass(frozen=True)
class MeasurePath:
    """What a choice for all clients asks of a client: all points of its path, measured."""

    splits: tuple[str, ...]

    def __call__(self, client: Client, own: State, *received: State) -> Any:
        """Measure all points."""
        path = client.method.path()
        assert path is not None
        return (measure(client, path.points(client, own, *received), self.splits),)


def collect(
    names: Sequence[str], splits: tuple[str, ...], measured: Iterable[Mapping[int, Any]]
) -> Iterator[Score]:
    """Turn what `measure` gave for each client and each of the named models into scores.

    The sums of a block are divided before the next block is visited: they are much larger.
    """
    clients: list[int] = []
    blocks: list[Any] = []
    total: Any = None
    for block in measured:
        if not block:
            continue
        clients += block
        stacked = tree.stack([*block.values()])
        blocks.append([(at.double().numpy(), [*map(figures, sums)]) for at, sums in stacked])
        added = tree.map(lambda rows: rows.sum(0), tuple(sums for _, sums in stacked))
        total = added if total is None else tree.map(torch.add, total, added)
    if not blocks:
        raise NobodyAnswered("no client could be evaluated")
    for m, model in enumerate(names):
        at = np.concatenate([block[m][0] for block in blocks])
        for s, split in enumerate(splits):
            columns = zip(*(block[m][1][s] for block in blocks), strict=True)
            numbers = Figures(*(np.concatenate(column) for column in columns))
            pooled = None if at.ndim > 2 else pool(total[m][s])
            yield Score(model, split, np.array(clients), at, numbers, pooled)
