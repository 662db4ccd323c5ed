"""Personalized federated learning over connected modes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.client import Client, Point
    from isthmus.cohort import Clients
    from isthmus.data.federation import Federation
    from isthmus.errors import IsthmusError
    from isthmus.experiment.settings import Experiment
    from isthmus.method import Method
    from isthmus.run.loop import Run, federate, resume
    from isthmus.run.open import open
    from isthmus.task import Task

# Where the public names live; they are imported when first used, so that the command line's help
# and the report do not wait for torch.
_HOMES = {
    "Client": "isthmus.client",
    "Clients": "isthmus.cohort",
    "Experiment": "isthmus.experiment.settings",
    "Federation": "isthmus.data.federation",
    "IsthmusError": "isthmus.errors",
    "Method": "isthmus.method",
    "Point": "isthmus.client",
    "Run": "isthmus.run.loop",
    "Task": "isthmus.task",
    "federate": "isthmus.run.loop",
    "open": "isthmus.run.open",
    "resume": "isthmus.run.loop",
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
