"""Personalized federated learning over connected modes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.client import Client, Point
    from isthmus.cohort import Clients
    from isthmus.config.experiment import Experiment
    from isthmus.data.federation import Federation
    from isthmus.errors import IsthmusError
    from isthmus.method import Method
    from isthmus.runs.opened import open
    from isthmus.task import Task
    from isthmus.training.federate import Run, federate, resume

# Where the public names live; they are imported when first used, so that the command line's help
# and the report do not wait for torch.
_HOMES = {
    "Client": "isthmus.client",
    "Clients": "isthmus.cohort",
    "Experiment": "isthmus.config.experiment",
    "Federation": "isthmus.data.federation",
    "IsthmusError": "isthmus.errors",
    "Method": "isthmus.method",
    "Point": "isthmus.client",
    "Run": "isthmus.training.federate",
    "Task": "isthmus.task",
    "federate": "isthmus.training.federate",
    "open": "isthmus.runs.opened",
    "resume": "isthmus.training.federate",
}

__all__ = [
    "Client",
    "Clients",
    "Experiment",
    "Federation",
    "IsthmusError",
    "Method",
    "Point",
    "Run",
    "Task",
    "federate",
    "open",
    "resume",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'isthmus' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
