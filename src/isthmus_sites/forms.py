"""What every message of a run looks like: learned by playing it with made-up data.

Both sides know the experiment, so both know which trees of tensors, of which shapes and types, each
function of a client takes and gives. What looks otherwise is refused before it is used, and no
message has to say what it is made of.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isthmus import tree
from isthmus.cohort import Clients, Round
from isthmus.context import Call, ClientFunction, Request, RunContext
from isthmus.data.arrays import SUMS
from isthmus.data.federation import Federation
from isthmus.engines.base import one_thread
from isthmus.engines.loop import Loop
from isthmus.errors import IsthmusError
from isthmus.evaluation import MeasurePath, Scoring, choose_for_all, score, splits_of
from isthmus.method import Method, State
from isthmus.run.newcomers import Joining, make_visit, score_newcomers
from isthmus.run.store import Progress
from isthmus.shelf import Shelf, after

# No method can call a function so.
SCORE, PATH, END = "evaluation: score", "evaluation: path", "run: end"
JOIN = "run: join"


class Form(NamedTuple):
    """A call of one function: what a client receives, and what it replies, as shapes."""

    function: str
    purpose: str
    received: tuple[State, ...]  # what all get, what this one gets, what the function holds, scales
    reply: State


def name_function(method: Method, function: ClientFunction) -> tuple[str, tuple[State, ...]]:
    """Return the name of a function of clients, and the tensors that it holds."""
    if isinstance(function, Scoring | Joining):
        name = SCORE if isinstance(function, Scoring) else JOIN
        return name, () if function.common is None else (function.common,)
    if isinstance(function, MeasurePath):
        return PATH, ()
    name = getattr(function, "__name__", "")
    if name not in method.about().calls or getattr(method, name, None) != function:
        raise IsthmusError(
            f"the method calls {name or function!r}, which is not in the calls of its About"
        )
    return name, ()


def find_function(setting: RunContext, name: str, brought: tuple[Any, ...]) -> ClientFunction:
    """Return the function of this name: the opposite of `name_function`."""
    if name in (SCORE, JOIN):
        kind = Scoring if name == SCORE else Joining
        return kind(brought[0] if brought else None, splits_of(setting))
    if name == PATH:
        split = setting.task.rule.split
        assert split is not None  # else there is no such call
        return MeasurePath((split,))
    function: ClientFunction = getattr(setting.method, name)
    return function


@dataclass(frozen=True)
class Forms:
    """All forms of a run."""

    known: tuple[Form, ...]

    def find(self, function: str, purpose: str) -> list[Form]:
        """Return the forms of a function for a purpose."""
        return [form for form in self.known if form[:2] == (function, purpose)]

    @property
    def largest(self) -> int:
        """The bytes of the largest message."""
        return max(measure_form(part) for form in self.known for part in form[2:])


class _FormRecorder(Loop):
    """Runs one client, answers the same for all others, and records the forms."""

    def __init__(self, client: int, scales: tuple[Tensor, ...]) -> None:
        Loop.__init__(self)
        self.client = client
        self.scales = scales
        self.seen: dict[str, Form] = {}

    def run(
        self, setting: RunContext, call: Call, requests: Iterator[Request]
    ) -> Iterator[tuple[int, Any]]:
        """Yield the one client's result for every client."""
        asked = {request.i: request for request in requests}
        request = asked.get(self.client) or next(iter(asked.values()))
        result = self.compute(setting, call, request)
        name, brought = name_function(setting.method, call.function)
        received = (call.shared, request.each, brought, self.scales)
        reply = result if name in (SCORE, PATH, JOIN) else result[1]
        form = Form(name, call.purpose, strip(received), strip(reply))
        self.seen[repr(form)] = form
        yield from ((i, result) for i in asked)


def learn(setting: RunContext, client: int = 0) -> Forms:
    """Play the rounds in which something changes, with one client's data, and record the forms."""
    engine = _make_recorder(setting, client)
    setting = setting._replace(engine=engine)
    for progress in _play(setting, client):
        round = Round(setting, progress.t - 1, progress.own, shelf=Shelf(progress.shelf))
        one = Clients([client], round)
        with one_thread():
            delivery = setting.method.deliver(progress.server, one)
            choose_for_all(setting, one, delivery)
            score(setting, one, delivery)
    return Forms(tuple(engine.seen.values()))


def learn_newcomer(setting: RunContext, data: Federation) -> Forms:
    """Play the same rounds, and record the forms of what a newcomer with these data is asked.

    It may keep its figures: then it answers nothing.
    """
    engine = _make_recorder(setting, 0)
    visit = make_visit(setting, data, engine)
    for progress in _play(setting._replace(engine=_make_recorder(setting, 0)), 0):
        score_newcomers(visit, progress)
    seen = list(engine.seen.values())
    return Forms((*seen, *(form._replace(reply=()) for form in seen if form.function == JOIN)))


def _make_recorder(setting: RunContext, client: int) -> _FormRecorder:
    together = setting.federation.arrays.scaled_by == SUMS
    scales = setting.federation.scales(client) if together else None
    return _FormRecorder(client, () if scales is None else tuple(map(torch.from_numpy, scales)))


def _play(setting: RunContext, client: int) -> Iterator[Progress]:
    """Play the rounds in which something changes, with one client; yield the run after each."""
    method, task = setting.method, setting.task
    server = method.init(task)
    own: dict[int, State] = {}
    shelf: dict[str, Tensor] = {}
    turns = {t for t in method.schedule(task.rounds) if 0 < t < task.rounds}
    for t in sorted({0, *turns, task.rounds - 1}):
        round = Round(setting, t, own, shelf=Shelf(shelf))
        with one_thread():
            server = method.round(server, Clients([client], round))
        own, shelf = {**own, **round.changed}, after(shelf, round.shelf.changed)
        yield Progress(t + 1, server, own, shelf)


def strip(parts: Any) -> Any:
    """Return a tree without its numbers: shapes and types."""
    return tree.map(lambda leaf: torch.empty(leaf.shape, dtype=leaf.dtype, device="meta"), parts)


def fits(parts: Any, form: Any) -> bool:
    """Whether a tree has the shapes and types of a form."""
    pairs = zip(tree.leaves(parts), tree.leaves(form), strict=True)
    return all(leaf.shape == like.shape and leaf.dtype == like.dtype for leaf, like in pairs)


def measure_form(form: Any) -> int:
    """Return the bytes that a tree of this form has."""
    return sum(prod(leaf.shape) * leaf.dtype.itemsize for leaf in tree.leaves(form))
