"""Clients that took part in no round join a run that is done.

What a newcomer builds for itself is its method's `join`; here it is delivered, measured, and
repeated with fewer of the newcomer's examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch import Tensor

from isthmus.client import Client, Point
from isthmus.cohort import Clients, Round
from isthmus.context import Engine, RunContext
from isthmus.data.federation import Federation
from isthmus.engines.base import one_thread
from isthmus.engines.loop import Loop
from isthmus.errors import IsthmusError
from isthmus.evaluation import Score, collect, measure, splits_of
from isthmus.method import State
from isthmus.run.store import Progress
from isthmus.shelf import Shelf

PURPOSE = "join"  # the purpose of what newcomers are asked: it names their random streams
SHOTS = (5, 10, 20, 50, None)  # training examples; None: all there are


class Newcomers(NamedTuple):
    """How newcomers did, with so many examples of their own to train on."""

    shots: int | None  # None: all they have
    scores: tuple[Score, ...]  # of "newcomer" and, where there is one, "shared"


def join(
    setting: RunContext, progress: Progress, data: Federation, shots: Sequence[int | None]
) -> list[Newcomers]:
    """Have newcomers build their models from the server's state and their data, and score these.

    `shots` limits what they may train on; their validation and test parts stay whole. Where there
    is a path they choose on their own validation part, unless the point is fixed.
    """
    for count in shots:
        if count is not None and count < 1:
            raise IsthmusError(
                f"shots={count}, but a newcomer needs at least one training example; for example "
                "--shots 5"
            )
    largest = max(data.sizes(i)[0] for i in range(len(data)))
    result = []
    for count in dict.fromkeys(n for n in shots if n is None or n < largest):
        few = data if count is None else data.limit_training(count, setting.task.seed)
        visit = make_visit(setting, few, Loop())
        result.append(Newcomers(count, score_newcomers(visit, progress)))
    return result


def make_visit(setting: RunContext, data: Federation, engine: Engine) -> RunContext:
    """Return the context in which newcomers join: their numbers come after all others'."""
    looks = setting.task.rule.split is not None
    task = replace(setting.task, selection="validation" if looks else setting.task.selection)
    return setting._replace(task=task, federation=data, engine=engine, first=task.clients)


def score_newcomers(setting: RunContext, progress: Progress) -> tuple[Score, ...]:
    """Score what each newcomer builds for itself, and the shared model on its data."""
    clients, splits = reach_newcomers(setting, progress), splits_of(setting)
    with one_thread():
        delivery = setting.method.deliver(progress.server, clients)
        joining = Joining(delivery.common, splits)
        measured = clients.visit(joining, delivery, purpose=PURPOSE)
        return tuple(collect(joining.names, splits, measured))


def reach_newcomers(
    setting: RunContext, progress: Progress, ids: Sequence[int] | None = None
) -> Clients:
    """Return a handle on newcomers, all or some, after the rounds so far."""
    round = Round(setting, progress.t, {}, shelf=Shelf(progress.shelf))
    return Clients(range(len(setting.federation)) if ids is None else ids, round)


@dataclass(frozen=True)
class Joining:
    """What is asked of a newcomer: to build its model, and to measure it beside the shared one."""

    common: Tensor | None
    splits: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """What records call the models that are measured."""
        return ["newcomer"] if self.common is None else ["newcomer", "shared"]

    def __call__(self, client: Client, own: State, *received: State) -> Any:
        """Build the newcomer's model, and measure both."""
        return self.score(client, *self.build(client, own, *received), *received)

    def build(self, client: Client, own: State, *received: State) -> tuple[State, Tensor | Point]:
        """Return what the newcomer holds from now on, and the model that it deploys."""
        own = client.method.join(client, *received)
        return own, client.method.personal(client, own, *received)

    def score(self, client: Client, own: State, model: Tensor | Point, *received: State) -> Any:
        """Measure both, where there is a shared one."""
        models = [model] if self.common is None else [model, self.common]
        return tuple(measure(client, each, self.splits) for each in models)


def describe(newcomers: Sequence[Newcomers]) -> str:
    """Describe in a few lines how newcomers did."""
    lines = ["clients that took part in no round, mean top-1 over them on their own test parts:"]
    for shots, scores in newcomers:
        means = ", ".join(
            f"{score.model} {score.figures.top1.mean():.2%}"
            for score in scores
            if score.split == "test"
        )
        lines.append(f"  {'all' if shots is None else shots} training examples: {means}")
    return "\n".join(lines)
