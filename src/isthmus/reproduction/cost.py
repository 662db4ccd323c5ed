"""About how long a published run takes here, from one step of its network, timed.

A rough guess for a list: who starts runs gets isthmus.training.estimate of each instead.
"""

import time
from contextlib import suppress
from functools import cache
from math import ceil

from isthmus.config import registry
from isthmus.config.experiment import Experiment
from isthmus.engines.base import one_thread
from isthmus.reproduction.inputs import INPUTS
from isthmus.reproduction.record import RunRecord, describe_machine
from isthmus.system.machine import count_cores
from isthmus.training.estimate import COMPILED

REPEATS = 3


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
    each = _time_step(model, shape, source.classes, experiment.batch_size)
    if each is None:
        return None
    passes = 2 if method.path() is not None else 1  # two ends, or several vertices
    turns = experiment.clients_per_round / count_cores()
    seconds = experiment.rounds * turns * experiment.epochs * passes * steps * each * COMPILED
    return seconds / 3600


@cache
def _time_step(
    model: tuple[tuple[str, object], ...], shape: tuple[int, ...], classes: int, batch_size: int
) -> float | None:
    """Times one step on one thread, the least of a few; None if the network takes no such input."""
    import torch

    network = registry.build("model", dict(model), shape, classes)
    x = torch.zeros(batch_size, *shape)
    y = torch.zeros(batch_size, dtype=torch.int64)
    seconds = []
    with one_thread(), suppress(RuntimeError):
        for _ in range(REPEATS):
            began = time.perf_counter()
            loss = torch.nn.functional.cross_entropy(network(x), y)
            torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
            seconds.append(time.perf_counter() - began)
    return min(seconds, default=None)
