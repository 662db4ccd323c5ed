"""Where the time of clients goes, in an engine that is watched."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

PREPARING = "a client's data and random numbers"
GATHER = "gathering batches"
NETWORK = "forward and backward"
STEP = "vector part"  # what a step takes besides NETWORK
COMPILED = "compiled steps: network and vector part"
COMPILING = "compiling"
FUNCTION = "the rest of the client functions"  # what they take besides all the above
MESSAGES = "messages"

INSIDE = {
    STEP: (NETWORK,),
    FUNCTION: (GATHER, STEP, COMPILED),
    COMPILED: (COMPILING,),
}  # measured with these in it


class Profile:
    """Adds up seconds by what they were spent on, if it is watching."""

    def __init__(self, watching: bool = False) -> None:
        self.watching = watching
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def measure(self, name: str, function: Callable[..., T]) -> Callable[..., T]:
        """Return a function whose calls are timed; the same one if it is not watching."""
        if not self.watching:
            return function

        def run(*given: Any, **named: Any) -> T:
            began = time.perf_counter()
            try:
                return function(*given, **named)
            finally:
                self.seconds[name] += time.perf_counter() - began

        return run

    def measure_each(self, name: str, things: Iterator[T]) -> Iterator[T]:
        """Yield the same things, and times how long each took to come."""
        take = self.measure(name, next)
        nothing: Any = object()
        while (thing := take(things, nothing)) is not nothing:
            yield thing

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add what another process measured."""
        for name, more in seconds.items():
            self.seconds[name] += more

    def take(self) -> dict[str, float]:
        """Return the seconds so far, and begin again."""
        seconds = dict(self.seconds)
        self.seconds.clear()
        return seconds

    def own_seconds(self) -> dict[str, float]:
        """Return the seconds of each part without those of the parts in it."""
        own = dict(self.seconds)
        for whole, parts in INSIDE.items():
            if whole in own:
                own[whole] -= sum(self.seconds.get(part, 0.0) for part in parts)
        return own
