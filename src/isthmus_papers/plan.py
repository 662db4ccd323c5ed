"""The runs that published numbers ask for: each once, whatever the number of tables it serves."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import islice
from typing import NamedTuple

from isthmus.experiment.settings import Experiment
from isthmus.selection import RULES
from isthmus_papers.recipe import Preset, TableCell
from isthmus_papers.record import identify, leave_untuned, name_run

EXAMPLES = {  # of the data sets behind published numbers
    "mnist": 60_000,
    "cifar10": 50_000,
    "cifar100": 50_000,
    "tinyimagenet": 100_000,
    "emnist": 697_932,
}
VALIDATED = 0.1  # the share of training examples on which a point is chosen, where none is left


class PlannedRun(NamedTuple):
    """A run, and the cells that it serves."""

    identity: str  # of what is asked for
    experiment: Experiment
    cells: tuple[TableCell, ...]

    @property
    def name(self) -> str:
        """Name its directory, and its row on a board."""
        return name_run(self.experiment)

    @property
    def is_trial(self) -> bool:
        """Whether settings are chosen by it, so that its test figures are not shown."""
        return all(cell.is_trial for cell in self.cells)


@cache
def list_experiments(
    cell: TableCell, preset: Preset, validated: bool = False
) -> Mapping[str, Experiment]:
    """List the experiments of a cell by identity, one for each seed; none if no run can meet it.

    With `validated`, those in which the point of a path is chosen on validation data, of cells
    whose paper chose it on test data.
    """
    rule = RULES.get(cell.number.selection)
    settings = cell.settings if preset == "paper" else cell.release
    on_test = rule is not None and rule.on_test
    if cell.reason is not None or settings is None or (validated and not on_test):
        return {}
    return _complete(json.dumps(settings, sort_keys=True), cell.seeds, validated)


@cache  # half of all cells have the settings of another: to complete an experiment takes its time
def _complete(settings: str, seeds: tuple[int, ...], validated: bool) -> Mapping[str, Experiment]:
    first = Experiment(**json.loads(settings), seed=seeds[0])
    if validated:
        share = first.validation or VALIDATED
        first = first.model_copy(update={"selection": "validation", "validation": share})
    experiments = [first.model_copy(update={"seed": seed}) for seed in seeds]
    return {identify(each): each for each in experiments}


def plan(
    cells: Iterable[TableCell], preset: Preset = "paper", seeds: int | None = None
) -> list[PlannedRun]:
    """List the runs of some cells, those chosen on validation data among them.

    `seeds` is how many of each cell's are wanted, its first ones; all of them if left out. A run
    that is also made with clients that tune the model is not made without: its numbers are there.
    """
    experiments: dict[str, Experiment] = {}
    served: dict[str, list[TableCell]] = {}
    for cell in cells:
        for validated in (False, True):
            of_seeds = list_experiments(cell, preset, validated).items()
            for name, experiment in islice(of_seeds, seeds):
                experiments[name] = experiment
                served.setdefault(name, []).append(cell)
    for name, experiment in list(experiments.items()):
        untuned = leave_untuned(experiment)
        if untuned is not None and (same := identify(untuned)) in served:
            served[name] += served.pop(same)
    return [PlannedRun(name, experiments[name], tuple(cells)) for name, cells in served.items()]


def group_columns(cells: Iterable[TableCell]) -> list[list[TableCell]]:
    """Group the cells of a table by column and metric: those whose methods compete."""
    columns: dict[tuple[str, str, str], list[TableCell]] = {}
    for cell in cells:
        columns.setdefault((cell.column, cell.metric, cell.number.model), []).append(cell)
    return list(columns.values())


def list_inputs(experiment: Experiment) -> dict[str, int]:
    """List what the data of a run must have, so that its numbers can be the published ones.

    >>> list_inputs(Experiment(data="mnist"))
    {'examples': 60000}
    """
    name, wanted = experiment.data["name"], {}
    if name in EXAMPLES and experiment.test_set == "server":
        wanted["examples"] = EXAMPLES[name]
    if experiment.partition["name"] == "natural" and experiment.clients:
        wanted["clients"] = experiment.clients
    return wanted
