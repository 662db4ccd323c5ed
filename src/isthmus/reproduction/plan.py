"""The runs that published numbers ask for: each once, whatever the number of tables it serves."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from isthmus.comparison.grid import change
from isthmus.config.experiment import Experiment
from isthmus.reproduction.recipe import Preset, TableCell
from isthmus.reproduction.record import identify, name_run
from isthmus.selection import RULES

VALIDATED = 0.1  # the share of training examples on which a point is chosen, where none is left


class PlannedRun(NamedTuple):
    """A run, and the cells that it serves."""

    experiment: Experiment
    cells: tuple[TableCell, ...]

    @property
    def identity(self) -> str:
        """Names what is asked for."""
        return identify(self.experiment)

    @property
    def name(self) -> str:
        """Names its directory, and its row on a board."""
        return name_run(self.experiment)


@cache
def list_experiments(
    cell: TableCell, preset: Preset, validated: bool = False
) -> Sequence[Experiment]:
    """Lists the experiments of a cell, one for each seed; none where no run can meet it.

    With `validated`, those in which the point of a path is chosen on validation data, of cells
    whose paper chose it on test data.
    """
    if cell.reason is not None or (preset == "release" and cell.release is None):
        return ()
    experiments = [cell.experiment(seed, preset) for seed in cell.seeds]
    if not validated:
        return experiments
    rule = RULES.get(cell.number.selection)
    if rule is None or not rule.on_test:
        return ()
    share = experiments[0].validation or VALIDATED
    return [change(each, selection="validation", validation=share) for each in experiments]


def plan(cells: Iterable[TableCell], preset: Preset = "paper") -> list[PlannedRun]:
    """Lists the runs of some cells, those chosen on validation data among them."""
    experiments: dict[str, Experiment] = {}
    served: dict[str, list[TableCell]] = {}
    for cell in cells:
        for validated in (False, True):
            for experiment in list_experiments(cell, preset, validated):
                name = identify(experiment)
                experiments[name] = experiment
                served.setdefault(name, []).append(cell)
    return [PlannedRun(experiment, tuple(served[name])) for name, experiment in experiments.items()]


def group_columns(cells: Iterable[TableCell]) -> list[list[TableCell]]:
    """Groups the cells of a table by column and metric: those whose methods compete."""
    columns: dict[tuple[str, str, str], list[TableCell]] = {}
    for cell in cells:
        columns.setdefault((cell.column, cell.metric, cell.number.model), []).append(cell)
    return list(columns.values())
