"""How models did: scores on every client's data, and what evaluation asks of a client."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isthmus import tree
from isthmus.client import Client, Point
from isthmus.context import Setting
from isthmus.method import Method, State
from isthmus.metrics.score import Figures, Pooled, figures, pooled


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
