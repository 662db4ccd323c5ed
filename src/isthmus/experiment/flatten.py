"""Settings as a flat list of names and values."""

from collections.abc import Mapping
from typing import Any


def flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Lists settings by their names, those within a table as `table.name`.

    >>> flatten({"lr": 0.1, "method": {"name": "fedavg"}})
    {'lr': 0.1, 'method.name': 'fedavg'}
    """
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{option}": choice for option, choice in value.items()}
        else:
            flat[key] = value
    return flat
