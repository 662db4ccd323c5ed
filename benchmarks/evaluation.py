"""Measures what an evaluation costs beside training: `python -m benchmarks speed evaluation`.

W1s with a tenth of every client's training examples kept for validation, as a run has it: after
each round all 100 clients are evaluated on their validation and test parts, at 11 points of their
paths. All of them have mixed before, so that no path is a single point.
"""

from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.contenders import CORES, prepare_run
from benchmarks.results import Result
from benchmarks.works import WORKS, read_data
from isthmus.context import RunContext
from isthmus.engines.loop import Loop
from isthmus.run.loop import advance
from isthmus.run.store import Memory

WORK = "W1s"


def measure(root: Path, rounds: int) -> Result:
    """Compare an evaluation with ten rounds."""
    experiment = WORKS[WORK].experiment(validation=0.1)
    _, setting = prepare_run(experiment, read_data(experiment, root), workers=CORES)
    training, evaluating = time_both(setting, rounds)
    return Result(
        f"{WORK} with validation, all clients evaluated at all points",
        {"ours": training, "evaluation of all clients": evaluating},
        {"evaluation of all clients / ten rounds": evaluating / (10 * training)},
    )


def time_both(setting: RunContext, rounds: int) -> tuple[float, float]:
    """Return the median seconds of a round and of an evaluation, after one of both to warm up."""
    store = Memory(setting)
    everybody = replace(setting.task, clients_per_round=setting.task.clients, epochs=1)
    engine = Loop(CORES)
    store.commit(advance(setting._replace(task=everybody, engine=engine), store.progress, False))
    engine.close()
    costs = []
    for _ in range(rounds + 1):
        step = advance(setting, store.progress, evaluate=True)
        store.commit(step)
        costs.append(step.cost)
    setting.engine.close()
    training = median(cost.train_seconds for cost in costs[1:])
    return training, median(cost.evaluate_seconds for cost in costs[1:])
