"""What stays the same during a run, one call of a client function, and what runs such calls."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from isthmus.data.federation import Federation
from isthmus.errors import IsthmusError
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


class InitialState(NamedTuple):
    """Stands for what a client holds before it takes part: it is made where it is needed."""

    number: int  # the client's, or beyond all of them that of a newcomer


class Request(NamedTuple):
    """What one client brings to a call: who it is, what it holds, what it alone receives."""

    i: int
    own: State | InitialState
    each: tuple[State, ...]  # empty, or one message

    def find_own(self, context: "RunContext") -> State:
        """Return what the client holds."""
        if isinstance(self.own, InitialState):
            return context.method.own(context.task, self.own.number)
        return self.own


class CallOutcome(NamedTuple):
    """What became of one call to one client, where clients need not answer."""

    call: int  # which one of its round, counted from 1
    function: str
    client: int
    outcome: str  # answered, or why not


class Engine:
    """Runs a client function for clients, anywhere; not every one need answer.

    A new engine is a subclass in a file of its own, with an entry in `isthmus.engines.ENGINES`.
    """

    handle: State | None = None  # what stands for an own state that lives elsewhere; None: here
    outcomes: Sequence[CallOutcome] = ()  # of the round's calls, where clients need not answer
    withheld: Collection[int] = ()  # clients whose figures are kept in sums with others' alone
    notes: list[str]  # what happened since they were cleared
    compiles = False  # whether steps may be compiled, on the CPU
    uses_devices = True  # whether it computes on other devices than the CPU

    @property
    def workers(self) -> int:
        """How many processes compute."""
        return 1

    def run(
        self, context: "RunContext", call: Call, requests: Iterator[Request]
    ) -> Iterator[tuple[int, Any]]:
        """Yield (client, what the function returned) for those that answer."""
        raise NotImplementedError

    def describe(self, why: str = "") -> str:
        """Describe how it computes; `why` is the reason, where steps can run in several ways."""
        raise NotImplementedError

    def describe_now(self) -> str:
        """Describe what it is doing at the moment; empty if there is nothing to add."""
        return ""

    def prepare(self, context: "RunContext") -> None:
        """Get ready for a run; raise what is wrong where it computes."""

    def watch(self) -> Callable[[], Mapping[str, float]]:
        """Measure from now on where the time of clients goes.

        Return a function that returns the seconds spent on each part of the work so far.
        """
        raise IsthmusError(
            f"--profile with engine={type(self).__name__.lower()}, which cannot tell its clients "
            "apart; set engine=loop, or leave --profile out"
        )

    def close(self) -> None:
        """Free what the engine holds; it may run again."""


class RunContext(NamedTuple):
    """All that stays the same during a run."""

    method: Method
    task: Task
    federation: Federation
    engine: Engine
    newcomers: Federation | None = None  # clients that are kept out of training
    evaluated: Sequence[int] | None = None  # the clients that evaluations ask; None: all
    first: int = 0  # the number of the federation's first client; newcomers come after all others

    def kind(self, i: int) -> int:
        """Return the kind of the federation's client i."""
        return self.method.networks().kind(self.first + i)

    def own_like(self, i: int) -> State:
        """Return a state of the shape in which client i's own state is kept here."""
        if self.engine.handle is not None:
            return self.engine.handle
        return self.method.own(self.task, i)
