"""The data sets behind published numbers: what they hold, and whether it is here."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from isthmus.errors import IsthmusError
from isthmus.experiment import registry
from isthmus.experiment.settings import Experiment


class Inputs(NamedTuple):
    """What clients share of a data set."""

    examples: int
    shape: tuple[int, ...]
    classes: int


INPUTS = {
    "mnist": Inputs(60_000, (1, 28, 28), 10),
    "cifar10": Inputs(50_000, (3, 32, 32), 10),
    "cifar100": Inputs(50_000, (3, 32, 32), 100),
    "tinyimagenet": Inputs(100_000, (3, 64, 64), 200),
    "emnist": Inputs(697_932, (1, 28, 28), 62),
}


def explain_other_data(data: Mapping[str, Any], data_root: Path) -> str | None:
    """Says why a published number cannot be of the data here; None where it can, or if unknown."""
    name = data["name"]
    if name not in INPUTS:
        return None
    try:
        arrays = registry.build("data", data).load(data_root, 0)
    except IsthmusError as error:
        return str(error)
    expected = INPUTS[name]
    if (len(arrays.y), arrays.classes) == (expected.examples, expected.classes):
        return None
    return (
        f"{name} has {len(arrays.y):,} examples of {arrays.classes} classes here; expected "
        f"{expected.examples:,} of {expected.classes}, of which the published numbers are; get the "
        f"whole of it with: isthmus data get {name} --force --data-root "
        f"{shlex.quote(str(data_root))}"
    )


def explain_other_clients(experiment: Experiment, found: int) -> str | None:
    """Says why a published number cannot be of the owners here; None where it can."""
    asked, data = experiment.clients, experiment.data["name"]
    if experiment.partition["name"] != "natural" or found == asked:
        return None
    return (
        f"{data} has {found:,} clients here; expected {asked:,}, as many as the published numbers "
        f"are of; get the whole of {data}"
    )
