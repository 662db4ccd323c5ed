"""About how long a published run takes here, from two steps of its network, timed.

A rough guess for a list: who starts runs gets isthmus.training.estimate of each instead.
"""

import time
from contextlib import suppress
from functools import cache
from math import ceil
from typing import NamedTuple

from isthmus.config import registry
from isthmus.config.experiment import Experiment
from isthmus.engines.base import one_thread
from isthmus.reproduction.inputs import INPUTS
from isthmus.reproduction.record import RunRecord, describe_machine
from isthmus.system.machine import count_cores
from isthmus.training.estimate import count_rounds
from isthmus.training.sampler import KEPT

FEW, SOME = 2, 8  # examples of a batch


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
    """Times steps of two sizes on one thread; None if the network takes no such input."""
    import torch

    network = registry.build("model", dict(model), shape, classes)
    seconds = []
    with one_thread(), suppress(RuntimeError):
        for size in (FEW, SOME, FEW, SOME):  # at the first of each size torch prepares itself
            x, y = torch.zeros(size, *shape), torch.zeros(size, dtype=torch.int64)
            began = time.process_time()
            loss = torch.nn.functional.cross_entropy(network(x), y)
            torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
            seconds.append(time.process_time() - began)
    if len(seconds) < 4:
        return None
    _, _, few, some = seconds
    example = max(0.0, some - few) / (SOME - FEW)
    return PlainStep(example, max(0.0, some - SOME * example))
