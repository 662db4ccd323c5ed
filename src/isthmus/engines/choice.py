"""What an experiment leaves open about how it is computed, chosen by the experiment alone.

Nothing is timed here, so a run repeats; its record says what was chosen. docs/engines.md has the
measurements behind the numbers.
"""

from collections.abc import Sequence
from typing import Any

from isthmus.config.experiment import Experiment
from isthmus.data.federation import Federation
from isthmus.engines import devices
from isthmus.engines.base import steps_per_pass
from isthmus.engines.compiled import compiler, repays
from isthmus.errors import IsthmusError
from isthmus.models.flat import Flat

SMALL = 5_000  # parameters up to which calling operations costs more than computing them
MANY = 50  # clients a round from which `stacked` outdoes two processes
EVEN = 2.0  # steps of the largest client over the mean, up to which little is padding

VECTORS = 6  # of P parameters: weights, momentum, gradient, and what a step makes of them
CACHE = 12 << 20  # bytes, of the last level
MEMORY = 1 << 30  # bytes, of a device that is not the CPU
MOST = 256  # clients in a block

SOON = 1_000  # steps of a round, for each layer of the network, that take less than compiling does


def chosen(
    experiment: Experiment, federation: Federation, networks: Sequence[Flat], own: bool
) -> dict[str, Any]:
    """Gives engine, block and step, for networks of which one may be somebody's own."""
    e = experiment
    devices.check(e.device)
    sizes = [federation.sizes(i)[0] for i in range(len(federation))]
    steps = [steps_per_pass(n, e.batch_size) for n in sizes]
    name = engine(e, steps, networks, own)
    size = sum(network.size for network in networks)
    return {"engine": name, "block": block(e, size), "step": step(e, name, steps, networks[0])}


def engine(e: Experiment, steps: Sequence[int], networks: Sequence[Flat], own: bool) -> str:
    """Chooses `stacked` on another device than the CPU, and for many tiny and even clients.

    A network of one's own may do what `stacked` refuses.
    """
    if e.engine != "auto":
        return e.engine
    if own or e.step == "compiled" or any(network.mixes_examples for network in networks):
        return "loop"
    small = sum(network.size for network in networks) <= SMALL
    even = max(steps) <= EVEN * sum(steps) / len(steps)
    many = e.clients_per_round >= MANY
    return "stacked" if e.device != "cpu" or (small and many and even) else "loop"


def block(e: Experiment, size: int) -> int:
    """Counts the clients, of so many parameters each, that stay in cache together."""
    room = CACHE if e.device == "cpu" else MEMORY
    return e.block or max(1, min(MOST, room // (4 * VECTORS * size)))


def step(e: Experiment, engine: str, steps: Sequence[int], network: Flat) -> str:
    """Chooses compiled steps where the run is long enough to repay compiling."""
    if e.step == "compiled" and (engine != "loop" or e.device != "cpu"):
        raise IsthmusError(
            f"step=compiled with engine={engine} and device={e.device}; expected engine=loop on "
            "the CPU, where steps are compiled; set step=eager, or engine=loop and device=cpu"
        )
    if e.step == "compiled" and not compiler():
        raise IsthmusError(
            "step=compiled, and no C++ compiler is on the path; expected g++ or clang++; install "
            "one, or set step=eager"
        )
    if e.step != "auto" or engine != "loop" or e.device != "cpu":
        return "eager" if e.step == "auto" else e.step
    total = e.rounds * e.clients_per_round * e.epochs * sum(steps) / len(steps)
    return "compiled" if repays(network, total) else "eager"


def compiled_from(e: Experiment, federation: Federation, network: Flat) -> int:
    """Finds the first round, from 0, whose steps are compiled where steps are.

    A first round that is short is done before its steps would have been compiled: it shows soon
    that all is well.
    """
    passes = [steps_per_pass(federation.sizes(i)[0], e.batch_size) for i in range(len(federation))]
    steps = e.clients_per_round * e.epochs * sum(passes) / len(passes)
    return int(steps <= SOON * network.layers)


def why(asked: str, chosen: str, network: Flat) -> str:
    """Says why steps are compiled, or are not, where `step` asked for something.

    >>> from torch import nn
    >>> why("eager", "eager", Flat(lambda: nn.Linear(2, 2)))
    'as asked for'
    """
    if asked != "auto":
        return "as asked for"
    if chosen == "compiled":
        return "as there are enough of them to repay it"
    if not compiler():
        return "as there is no C++ compiler"
    if network.recurrent:
        return "as the network is recurrent"
    return "as there are too few of them to repay it"
