"""Chooses what the plan of a run leaves open: its engine, step, unroll and block.

Nothing is timed here, so a run repeats; its record says what was chosen. docs/engines.md has the
measurements behind the numbers.
"""

from isthmus.engines import ENGINES, devices
from isthmus.engines.base import SMALL_PARAMETERS, Plan
from isthmus.engines.compiled import UNROLL, has_compiler, repays, repays_several
from isthmus.engines.stacked import count_block
from isthmus.errors import IsthmusError
from isthmus.models.flat import Flat

MANY_CLIENTS = 50  # clients a round from which `stacked` outdoes two processes
EVEN_RATIO = 2.0  # steps of the largest client over the mean, up to which little is padding


def choose(plan: Plan) -> Plan:
    """Fill in the engine, step, unroll and block that a plan leaves open."""
    devices.check(plan.device)
    plan = plan._replace(engine=choose_engine(plan))
    if plan.device != "cpu" and not ENGINES[plan.engine].uses_devices:
        raise IsthmusError(
            f"engine={plan.engine} computes only on the CPU, not on device={plan.device}; set "
            "device=cpu, or another engine"
        )
    block = plan.block or count_block(plan.parameters, plan.device)
    plan = plan._replace(step=choose_step(plan), block=block)
    return plan._replace(unroll=choose_unroll(plan))


def choose_engine(plan: Plan) -> str:
    """Choose `stacked` on another device than the CPU, and for many tiny and even clients.

    A network of one's own may do what `stacked` refuses.
    """
    if plan.engine != "auto":
        return plan.engine
    if plan.own or plan.step == "compiled" or plan.mixes_examples or plan.random:
        return "loop"
    steps = plan.steps
    small = plan.parameters <= SMALL_PARAMETERS
    even = max(steps) <= EVEN_RATIO * sum(steps) / len(steps)
    many = plan.clients_per_round >= MANY_CLIENTS
    return "stacked" if plan.device != "cpu" or (small and many and even) else "loop"


def choose_step(plan: Plan) -> str:
    """Choose compiled steps where the run is long enough to repay compiling."""
    may_compile = ENGINES[plan.engine].compiles and plan.device == "cpu"
    if plan.step == "compiled" and not may_compile:
        raise IsthmusError(
            f"step=compiled with engine={plan.engine} and device={plan.device}: only loop and ray "
            "compile steps, on the CPU; set step=eager, or engine=loop and device=cpu"
        )
    if plan.step == "compiled" and not has_compiler():
        raise IsthmusError(
            "step=compiled needs a C++ compiler, and none is on the path; install g++ or clang++, "
            "or set step=eager"
        )
    if plan.step != "auto":
        return plan.step
    steps = plan.rounds * plan.steps_per_round
    return "compiled" if may_compile and repays(plan.networks[0], steps) else "eager"


def choose_unroll(plan: Plan) -> int:
    """Choose programs of several steps where the run is long enough to repay them."""
    if plan.step != "compiled" or plan.unroll:
        return plan.unroll
    return UNROLL if repays_several(plan) else 1


def explain_step(wanted: str, chosen: str, network: Flat) -> str:
    """Describe why steps are compiled, or are not, where an experiment wanted some `step`.

    >>> from torch import nn
    >>> explain_step("eager", "eager", Flat(lambda: nn.Linear(2, 2)))
    'as asked for'
    """
    if wanted != "auto":
        return "as asked for"
    if chosen == "compiled":
        return "as there are enough of them to repay it"
    if not has_compiler():
        return "as there is no C++ compiler"
    if network.recurrent:
        return "as the network is recurrent"
    if network.random:
        return "as the network draws random numbers, and no two steps agree"
    return "as there are too few of them to repay it"
