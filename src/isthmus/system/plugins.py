"""Names that stand for code of this package or of an installed one, which is loaded when needed."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from inspect import isclass
from typing import Any

from isthmus.errors import IsthmusError


@cache
def find_plugins(group: str) -> Mapping[str, EntryPoint]:
    """Return what installed packages offer in a group of entry points, by name."""
    return {point.name: point for point in entry_points(group=group)}


class Registry(Mapping[str, Any]):
    """What names stand for, each written as "module:attribute" and imported when it is looked up.

    Installed packages add names of their own by entry points of the registry's group.

    >>> known = Registry("isthmus.examples", {"sum": "math:fsum"})
    >>> list(known), known["sum"]([0.5, 0.25])
    (['sum'], 0.75)
    """

    def __init__(
        self,
        group: str,
        targets: Mapping[str, str],
        variants: Mapping[str, Mapping[str, Any]] | None = None,
    ):
        self.group = group
        self.targets = targets
        self.variants = variants  # arguments by name, where classes stand for their instances

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self.targets, *find_plugins(self.group)]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self.targets or name in find_plugins(self.group)

    def __getitem__(self, name: str) -> Any:
        target = self.targets.get(name)
        if target is not None:
            found = EntryPoint(name, target, self.group).load()
        else:
            found = load_plugin(find_plugins(self.group)[name])
        return self.instantiate(name, found)

    def instantiate(self, name: str, found: Any) -> Any:
        """Return the instance that a name stands for, where a class stands for its instances."""
        if self.variants is None or not isclass(found):
            return found
        return found(**self.variants.get(name, {}))


def load_plugin(point: EntryPoint) -> Any:
    """Import what another package offers."""
    try:
        return point.load()
    except Exception as error:  # whatever the code of another package raises
        package = point.dist.name if point.dist else point.value
        raise IsthmusError(
            f"{point.name} of package {package} cannot be loaded ({error}); repair or uninstall "
            "that package"
        ) from error
