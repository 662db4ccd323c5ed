"""What the steps of a client take, from a few of them: the others are counted and not taken.

The time of a step has a part that grows with its batch and one that does not: reading and writing
vectors of all parameters, and calling operations. The second is what compiling saves.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from isthmus.client import Batch, Step
from isthmus.engines.compiled import Compiled

LEAST, MOST = 4, 30  # steps that are taken of each scan
ENOUGH = 0.05  # seconds, after which no more are
FEW = 2  # examples of a small batch
KEPT = 0.25  # of the time that does not grow with the batch, in a compiled step

Clock = Callable[[], float]


class StepSampler(Compiled):
    """Stands where steps are compiled: takes a few, and counts the seconds of the others."""

    clock: Clock = time.process_time
    ahead = 0.0  # seconds that all steps so far would have taken, less those that were spent

    def __init__(self, batch_size: int, will_compile: bool, fills: bool):
        Compiled.__init__(self, batch_size, layers=1, fills=fills)
        self.will_compile = will_compile

    def fold(self, step: Step, carry: Any, batches: Iterator[Batch], n: int) -> Any:
        """Takes the first steps one after another."""
        taken: list[float] = []
        spent, count = 0.0, 0
        for batch in batches:
            count += 1
            if len(taken) < LEAST or (len(taken) < MOST and spent < ENOUGH):
                seconds, carry = self._time(step, carry, batch)
                taken.append(seconds)
                spent += seconds
                usual = batch
        if count:
            each = _average(taken)
            if self.will_compile:
                small = shorten(usual)
                again = [self._time(step, carry, small)[0] for _ in range(LEAST)]
                spent += sum(again)
                each = compile_time(len(usual.y), each, len(small.y), _average(again))
            self.ahead += count * each - spent
        return carry

    def _time(self, step: Step, carry: Any, batch: Batch) -> tuple[float, Any]:
        began = self.clock()
        carry = step(carry, batch)
        return self.clock() - began, carry


def compile_time(size: int, seconds: float, few: int, seconds_of_few: float) -> float:
    """Gives about what a compiled step takes, from what plain ones of two sizes do.

    >>> compile_time(10, 2.0, 2, 1.2)  # 0.1 for an example, and 1 whatever the batch
    1.25
    """
    if few >= size:
        return KEPT * seconds
    share = few / size
    fixed = (seconds_of_few - share * seconds) / (1 - share)
    fixed = min(max(fixed, 0.0), seconds)
    return seconds - (1 - KEPT) * fixed


def shorten(batch: Batch) -> Batch:
    """Gives the first few examples of a batch."""
    weight = None if batch.weight is None else batch.weight[:FEW]
    importance = () if isinstance(batch.importance, tuple) else batch.importance[:FEW]
    return Batch(*(batch.x[:FEW], batch.y[:FEW], batch.u, batch.rows[:FEW], importance, weight))


def _average(seconds: list[float]) -> float:
    """Averages over all but the first, in which torch prepares itself."""
    later = seconds[1:] or seconds
    return sum(later) / len(later)
