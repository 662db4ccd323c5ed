"""Own files of clients that join a run: read as the run's own data were."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from isthmus.data.arrays import SUMS, Arrays
from isthmus.data.federation import Federation
from isthmus.data.own.arrays import Files, check_range
from isthmus.data.own.arrays import read_arrays as read_named_arrays
from isthmus.data.own.folders import Folders
from isthmus.data.own.own_files import detect_kind, find_own_files
from isthmus.data.own.tables import Table
from isthmus.errors import IsthmusError

SOURCES: Mapping[str, type[Files] | type[Folders] | type[Table]] = {
    "files": Files,
    "folders": Folders,
    "table": Table,
}


def read_newcomers(
    path: Path,
    like: Federation,
    data: Mapping[str, Any] = MappingProxyType({}),
    seed: int = 0,
) -> Federation:
    """Read newcomers; `data` is what the run's experiment says of its own files, if it has any."""
    arrays = read_arrays(path, like.arrays, like.shape, data)
    test, validation = like.shares.get("test", 0.2), like.shares.get("validation", 0.1)
    newcomers = Federation.from_owners(arrays, test, validation, seed)
    return newcomers.scale_by(like.scales(0)) if arrays.scaled_by == SUMS else newcomers


def read_arrays(
    path: Path,
    like: Arrays,
    shape: tuple[int, ...],
    data: Mapping[str, Any] = MappingProxyType({}),
) -> Arrays:
    """Read examples as other data were read: the same columns, classes and scales."""
    place = find_own_files(str(path), Path())
    kind = detect_kind(place)
    known = {k: v for k, v in data.items() if k != "name"} if data.get("name") == kind else {}
    arrays = SOURCES[kind](**known).like(place, like)
    x, y = arrays.x, arrays.y
    if x.shape[1:] != shape or int(y.max()) >= like.classes:
        raise IsthmusError(
            f"{path} has inputs {x.shape[1:]} and labels up to {y.max()}; the run's inputs are "
            f"{shape} and its labels below {like.classes}"
        )
    names = ("classes", "scale", "mean", "std", "tokens", "columns", "scaled_by")
    scaled = arrays._replace(**{name: getattr(like, name) for name in names})
    check_range(scaled)
    return scaled


def read_inputs(path: Path, like: Arrays) -> Arrays:
    """Read inputs without labels, as other data were read: a table, or an array x.

    The labels are zeros.
    """
    place = find_own_files(str(path), Path())
    kind = detect_kind(place)
    if kind == "table" and like.columns:
        return Table().read_inputs(place, like)
    found = read_named_arrays(place) if place.is_file() and kind == "files" else {}
    x = found.get("x")
    if x is None or x.shape[1:] != like.x.shape[1:] or not len(x):
        expected = "a table" if like.columns else f"an .npz file with x of shape {like.x.shape[1:]}"
        given = "no array x" if x is None else f"x of shape {x.shape[1:]}"
        raise IsthmusError(f"{path} has {given}; give {expected}, as in the run")
    arrays = like._replace(x=x, y=np.zeros(len(x), np.int64), notes=())
    check_range(arrays)
    return arrays
