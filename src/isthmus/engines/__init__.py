"""Engines by name: where and how client functions run.

A new engine is its file and one entry here.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from isthmus.context import Engine
from isthmus.engines.base import ClientError, Cluster, Plan
from isthmus.engines.loop import Loop
from isthmus.engines.ray import RayEngine
from isthmus.engines.stacked import Stacked

__all__ = [
    "ENGINES",
    "ClientError",
    "Cluster",
    "EngineName",
    "Loop",
    "Plan",
    "RayEngine",
    "Stacked",
]

ENGINES: Mapping[str, Callable[[Plan], Engine]] = MappingProxyType(
    {"loop": Loop.make, "stacked": Stacked.make, "ray": RayEngine.make}
)

if TYPE_CHECKING:
    EngineName = str
else:
    EngineName = Literal["auto", *ENGINES]
