"""Engines by name: where and how client functions run.

A new engine is its file, which makes it of a `Plan`, and one entry here.
"""

from isthmus.system.plugins import Registry

ENGINES = Registry(
    "isthmus.engines",
    {
        "loop": "isthmus.engines.loop:Loop",
        "stacked": "isthmus.engines.stacked:Stacked",
        "ray": "isthmus.engines.ray:RayEngine",
    },
)
