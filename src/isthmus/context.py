"""What stays the same during a run, one call of a client function, and what runs such calls."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from isthmus.data.federation import Federation
from isthmus.method import Method, State
from isthmus.task import Task

ClientFunction = Callable[..., Any]  # f(client, own, *received)


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

    def find_own(self, setting: "Setting") -> State:
        """Gives what the client holds."""
        if isinstance(self.own, Fresh):
            return setting.method.own(setting.task, self.own.number)
        return self.own


class Engine(Protocol):
    """Runs a client function for clients, anywhere; not every one need answer."""

    notes: list[str]  # what happened since somebody looked
    workers: int  # processes that compute

    def run(
        self, setting: "Setting", call: Call, requests: Iterator[Request]
    ) -> Iterator[tuple[int, Any]]:
        """Yields (client, what the function returned) for those that answer."""
        ...

    def describe(self, why: str = "") -> str:
        """Says how it computes; `why` tells the reason, where its steps can run in several ways."""
        ...

    def watch(self) -> Callable[[], Mapping[str, float]]:
        """Measures from now on where the time of clients goes, or refuses to.

        Gives a function that tells the seconds spent on each part of the work so far.
        """
        ...

    def close(self) -> None:
        """Frees what the engine holds; it may run again."""
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
        return self.method.networks().kind(self.first + i)
