"""Engines by name: where and how client functions run."""

from isthmus.engines.base import ClientError
from isthmus.engines.loop import Loop
from isthmus.engines.stacked import Stacked

__all__ = ["ClientError", "Loop", "Stacked"]
