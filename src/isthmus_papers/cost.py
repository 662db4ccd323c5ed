"""About how long a published run takes here, from two steps of its network, timed.

A rough guess for a list: who starts runs gets isthmus.run.forecast of each instead.
"""

import time
from contextlib import suppress
from functools import cache
from math import ceil
from typing import NamedTuple

from isthmus.engines.base import one_thread
from isthmus.experiment import registry
from isthmus.experiment.settings import Experiment
from isthmus.models.layout import find_pooled
from isthmus.run.forecast import count_rounds
from isthmus.run.sampler import KEPT
from isthmus.system.machine import count_cores
from isthmus_papers.inputs import INPUTS
from isthmus_papers.record import RunRecord, describe_machine

FEW, SOME, MANY = 2, 8, 32  # examples of a batch
POOLED = (
    0.5  # of what an example takes is left by compiled steps that pool convolutions: 0.4 to 0.8
)
QUICK = 0.02  # seconds of a step of SOME, below which only MANY tell how it grows


def guess_hours(experiment: Experiment, known: RunRecord | None = None) -> float | None:
    """Guesses the hours of a run on all cores; None where nothing is known of its data.

    Where a record of it was made on such a machine, its seconds tell.
    """
    if known is not None and known.machine == describe_machine():
        return known.seconds / 3600
    source = INPUTS.get(experiment.data["name"])
    if source is None:
        return None
    method = registry.build("method", experiment.method)
    size = experiment.data.get("size") or 0
    shape = (*source.shape[:1], size, size) if size else source.shape
    clients = experiment.clients or 1000
    examples = source.examples / clients * (1 - experiment.test) * (1 - experiment.validation)
    steps = ceil(examples / experiment.batch_size)
    model = tuple(sorted((key, v) for key, v in experiment.model.items() if key != "weights"))
    step = _time_step(model, shape, source.classes)
    if step is None:
        return None
    vectors = 2 if method.path() is not None else 1  # that a step moves: two ends, or vertices
    each = step.example * experiment.batch_size + KEPT * vectors * step.fixed
    rounds = count_rounds(experiment)
    asked = experiment.clients_per_round if rounds == experiment.rounds else clients
    return rounds * asked / count_cores() * experiment.epochs * steps * each / 3600


class PlainStep(NamedTuple):
    """What a plain step takes: for each example, and whatever its batch."""

    example: float
    fixed: float


@cache
def _time_step(
    model: tuple[tuple[str, object], ...], shape: tuple[int, ...], classes: int
) -> PlainStep | None:
    """Times steps of two sizes on one thread; None if the network takes no such input.

    Pooling takes longer on pictures than on zeros, so the inputs are random.
    """
    import torch

    network = registry.build("model", dict(model), shape, classes)

    def take(size: int) -> float:
        x, y = torch.rand(size, *shape), torch.zeros(size, dtype=torch.int64)
        began = time.process_time()
        loss = torch.nn.functional.cross_entropy(network(x), y)
        torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
        return time.process_time() - began

    def take_again(size: int) -> float:
        return min(take(size) for _ in range(3))  # at the first, torch prepares itself

    with one_thread(), suppress(RuntimeError):
        first = take(SOME), take(SOME)
        few, many = (FEW, SOME) if first[1] > QUICK else (SOME, MANY)
        least, most = take_again(few), take_again(many)
        example = max(0.0, most - least) / (many - few)
        kept = POOLED if any(True for _ in find_pooled(network)) else 1.0
        return PlainStep(kept * example, max(0.0, most - many * example))
    return None
