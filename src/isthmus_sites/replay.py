"""A deployed run played again in simulation, from its record of who answered.

Sites are late, absent or restored, and a server takes what it gets: with the same answers missing
the simulation has to come to the same bits. Only the record and the data are needed.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from isthmus import tree
from isthmus.context import Call, Engine, Request, RunContext
from isthmus.data.federation import Federation
from isthmus.errors import IsthmusError
from isthmus.experiment.settings import Experiment
from isthmus.run.build import build
from isthmus.run.columns import read_arrays
from isthmus.run.loop import RoundResult, train
from isthmus.run.schema import CALLS
from isthmus.run.store import Memory, Progress, digest_of
from isthmus_sites.engine import ANSWERED, read_state_name
from isthmus_sites.forms import name_function


class AskedFor(NamedTuple):
    """One call of a deployed run, as its record has it."""

    function: str
    outcomes: dict[int, str]  # by client


CallRecord = dict[tuple[int, int], AskedFor]  # by round and number of the call, both from 1 on


class Replayed(NamedTuple):
    """Where the simulation came to."""

    progress: Progress
    missed: int  # answers that were missing, of calls that train

    @property
    def own(self) -> dict[int, str]:
        """The digests of own states, by client."""
        return {i: tree.digest([state]) for i, state in self.progress.own.items()}

    @property
    def digest(self) -> str:
        """What a server's run is named by that knows own states by their digests."""
        handles = {i: read_state_name(digest) for i, digest in self.own.items()}
        return digest_of(self.progress._replace(own=handles))


def replay(run: Path, experiment: Experiment, data: Federation) -> Replayed:
    """Play the rounds that a deployed run's directory records, with the answers that it had."""
    calls = read_calls(run)
    rounds = max((round for round, _ in calls), default=0)
    given = experiment.table() | {"data": "own", "partition": "own"}
    built = build(Experiment(**given), data=data)
    engine = ReplayEngine(built.setting.engine, calls)

    def watch(done: RoundResult) -> bool:
        return done.cost.round >= rounds

    memory = Memory(built.setting)
    if rounds:
        train(built._replace(setting=built.setting._replace(engine=engine)), memory, watch)
    return Replayed(memory.progress, engine.missed)


def read_calls(run: Path) -> CallRecord:
    """Return who was asked for what, and how it ended; an incomplete last line is left out."""
    calls: CallRecord = {}
    columns = [column.tolist() for column in read_arrays(run / "calls.csv", CALLS).values()]
    for round, call, function, client, outcome in zip(*columns, strict=True):
        asked = calls.setdefault((round, call), AskedFor(function, {}))
        asked.outcomes[client] = outcome
    return calls


class ReplayEngine(Engine):
    """Runs the calls of a record for those clients that answered; no other is asked."""

    def __init__(self, engine: Engine, calls: CallRecord) -> None:
        self.notes = engine.notes
        self.missed = 0
        self._engine = engine
        self._calls = calls
        self._last = (0, 0)

    def run(
        self, setting: RunContext, call: Call, requests: Iterator[Request]
    ) -> Iterator[tuple[int, Any]]:
        """Yield (client, what its function returned) for clients that answered then."""
        asked = list(requests)
        if not asked:
            return
        round, number = self._last
        self._last = (call.t + 1, number + 1 if round == call.t + 1 else 1)
        name, _ = name_function(setting.method, call.function)
        clients = {request.i for request in asked}
        recorded = self._calls.get(self._last, AskedFor("nothing", {}))
        if (name, clients) != (recorded.function, set(recorded.outcomes)):
            raise IsthmusError(
                f"round {call.t + 1}, call {self._last[1]}: the record has {recorded.function} for "
                f"clients {sorted(recorded.outcomes)}, not {name} for {sorted(clients)}; it "
                "belongs to another experiment, or to other data"
            )
        there = [request for request in asked if recorded.outcomes[request.i] == ANSWERED]
        self.missed += (len(asked) - len(there)) * (call.purpose != "evaluate")
        yield from self._engine.run(setting, call, iter(there))

    def describe(self, why: str = "") -> str:
        """Describe how it computes."""
        return f"{self._engine.describe(why)}; the answers of a record"

    def watch(self) -> Callable[[], Mapping[str, float]]:
        """Measure where the time goes."""
        return self._engine.watch()

    def close(self) -> None:
        """Close the engine that computes."""
        self._engine.close()
