"""Engines by name: where and how client functions run.

A new engine is its file and one entry here: what makes an engine of a run's `Plan`.
"""

from isthmus.system.plugins import Registry

ENGINES = Registry(
    "isthmus.engines",
    {
        "loop": "isthmus.engines.loop:Loop.make",
        "stacked": "isthmus.engines.stacked:Stacked.make",
        "ray": "isthmus.engines.ray:RayEngine.make",
    },
)
