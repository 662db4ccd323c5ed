"""Runs that differ in nothing but their seed, put together."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from isthmus.errors import IsthmusError
from isthmus.experiment.settings import list_settings
from isthmus.run.record import RecordedRun

SEEDED = {*list_settings("seed"), "data.digest"}  # settings that may differ within a group


class Group(NamedTuple):
    """One method with one choice of settings, over its seeds."""

    label: str
    runs: tuple[RecordedRun, ...]  # by ascending seed

    @property
    def method(self) -> str:
        """The method's name."""
        return self.runs[0].method

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds."""
        return tuple(run.seed or 0 for run in self.runs)

    def total(self, column: str) -> float:
        """Return the mean over seeds of what was spent up to the last evaluated round."""
        return float(np.mean([run.total(column) for run in self.runs]))

    def pool(self, metric: str) -> float | None:
        """Return the mean over seeds of a number that each run pools over its test examples."""
        return average_known([run.pool(metric) for run in self.runs])


def average_known(values: Sequence[float | None]) -> float | None:
    """Return the mean of the numbers that are known, None if none is."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def group_by_seed(runs: Sequence[RecordedRun]) -> list[Group]:
    """Group runs whose settings differ at most in the seed, in order of appearance.

    Groups of one method are named by the settings in which they differ.
    """
    by_settings: dict[frozenset[tuple[str, str]], list[RecordedRun]] = {}
    for run in runs:
        by_settings.setdefault(make_key(run.settings), []).append(run)
    for together in by_settings.values():
        seeds = [run.seed for run in together]
        twice = next((seed for seed in seeds if seeds.count(seed) > 1), None)
        if twice is not None:
            first, second = [run.path for run in together if run.seed == twice][:2]
            raise IsthmusError(
                f"{first} and {second} are the same experiment with the same seed; "
                "leave one of them out"
            )
    names = name_apart([together[0] for together in by_settings.values()], "method")
    return [
        Group(name, tuple(sorted(together, key=lambda run: run.seed or 0)))
        for name, together in zip(names, by_settings.values(), strict=True)
    ]


def name_apart(
    runs: Sequence[RecordedRun], part: str, only: Collection[str] | None = None
) -> list[str]:
    """Name runs by a part of their settings, and by what else differs where the name is the same.

    `only` lists the settings that names may have, by what precedes their dot; all if left out.
    """
    names = []
    for run in runs:
        alike = [other for other in runs if _name(other, part) == _name(run, part)]
        differing = [
            f"{key.removeprefix(f'{part}.')}={run.settings.get(key)}"
            for key in dict.fromkeys(key for other in alike for key in other.settings)
            if _is_named(key, only) and len({repr(other.settings.get(key)) for other in alike}) > 1
        ]
        names.append(" · ".join([_name(run, part), *differing]))
    return names


def _name(run: RecordedRun, part: str) -> str:
    return run.title if part == "method" else str(run.settings.get(f"{part}.name", part))


def make_key(
    settings: Mapping[str, Any], only: Collection[str] | None = None
) -> frozenset[tuple[str, str]]:
    """Return the settings but the seed, or those of them that `only` lists, to compare runs by."""
    return frozenset((key, repr(value)) for key, value in settings.items() if _is_named(key, only))


def _is_named(key: str, only: Collection[str] | None) -> bool:
    return key not in SEEDED and (only is None or key.partition(".")[0] in only)
