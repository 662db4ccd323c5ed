"""Build a federation: read a data set, divide it among clients, add noise to its labels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus import streams
from isthmus.data import NOISES, SOURCES
from isthmus.data.arrays import Arrays, Source
from isthmus.data.federation import Federation, divide, fills_splits
from isthmus.data.label_noise import Noise
from isthmus.data.partitions.division import Partition
from isthmus.errors import IsthmusError


def build_federation(
    source: Source,
    partition: Partition,
    noise: Noise,
    *,
    clients: int,
    clients_per_round: int,
    test: float,
    validation: float,
    divides_test_set: bool,
    seed: int,
    data_root: Path,
) -> Federation:
    """Read the source, and divides it among `clients`; 0 stands for one per owner."""
    arrays = source.load(data_root, seed)
    if divides_test_set:
        arrays = _add_test_set(arrays, _name(SOURCES, source))
    _check_learnable(arrays)
    arrays = noise.corrupt_all(arrays, seed)
    rng = streams.stream(seed, "partition")
    names: list[str] = []
    left_out: tuple[str, ...] = ()
    if partition.by_owner:
        if arrays.owner is None:
            raise IsthmusError(
                f"data {_name(SOURCES, source)} do not say whose each example is, as partition "
                "natural needs; choose another one, for example --set partition=iid"
            )
        owner, left_out = _find_owners(arrays, arrays.owner, test, validation)
        shares, notes = partition.cut(owner, clients, rng)
        names = [_owner_name(arrays, int(owner[rows[0]])) for rows in shares]
    else:
        count = clients or arrays.count_owners()
        if not count:
            raise IsthmusError(
                f"clients=0, but data {_name(SOURCES, source)} do not say whose each example is; "
                "set a number, for example --set clients=20"
            )
        shares, notes = partition.cut(arrays.y, count, rng)
    notes = (*arrays.notes, *left_out, *notes)
    if clients_per_round > len(shares) and not clients:
        notes += (f"there are {len(shares)} clients: all of them take part in every round",)
    parts = divide(shares, test, validation, seed, arrays.split)
    federation = Federation(arrays, parts, {"test": test, "validation": validation}, notes, names)
    return noise.corrupt_clients(federation, seed)


def add_noise(federation: Federation, noise: Noise, seed: int) -> Federation:
    """Corrupt the labels of clients that were divided elsewhere."""
    if noise.before_partition:
        raise IsthmusError(
            f"noise {_name(NOISES, noise)} comes before the partition, and these data are divided; "
            "set noise to none, pair or symmetric"
        )
    return noise.corrupt_clients(federation, seed)


def _add_test_set(arrays: Arrays, name: str) -> Arrays:
    """Put the server's test examples among those that are divided."""
    if not len(arrays.test_y):
        raise IsthmusError(f"test_set=clients, but data {name} have no test examples of their own")
    if arrays.owner is not None or arrays.split is not None or arrays.weight is not None:
        raise IsthmusError(
            f"test_set=clients, but data {name} have owners, splits or weights, which their test "
            "examples lack; leave it out"
        )
    return arrays._replace(
        x=np.concatenate([arrays.x, arrays.test_x]),
        y=np.concatenate([arrays.y, arrays.test_y]),
        test_x=arrays.test_x[:0],
        test_y=arrays.test_y[:0],
    )


def _check_learnable(arrays: Arrays) -> None:
    """Refuse data that there is nothing to learn from."""
    if 0 in arrays.x.shape:
        raise IsthmusError(
            f"the data hold {len(arrays.x)} examples of shape {arrays.x.shape[1:]}: nothing to "
            "learn from"
        )
    if arrays.y.min() == arrays.y.max():
        raise IsthmusError(
            f"all {len(arrays.y):,} examples are of one class; is it the column, or the array, of "
            "the labels?"
        )


def _find_owners(
    arrays: Arrays, owner: NDArray[np.int64], test: float, validation: float
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return whose each example is, -1 where an owner's do not fill three splits, and a note."""
    by_owner = np.argsort(owner, kind="stable")
    owners, sizes = np.unique(owner, return_counts=True)
    owner, small = owner.copy(), 0
    for rows in np.split(by_owner, np.cumsum(sizes)[:-1]):
        if not fills_splits(rows, test, validation, arrays.split):
            owner[rows] = -1
            small += 1
    if small == len(owners):
        raise IsthmusError(
            f"none of {small} owners has enough examples for test={test:g} and "
            f"validation={validation:g}; change the shares, or the partition"
        )
    note = f"{small:,} of {len(owners):,} owners have too few examples to fill three splits"
    return owner, (note,) if small else ()


def _owner_name(arrays: Arrays, owner: int) -> str:
    name = arrays.names[owner] if arrays.names else str(owner)
    return "".join(letter if letter.isprintable() else " " for letter in name)


def _name(known: Mapping[str, type], part: Any) -> str:
    return next((name for name, kind in known.items() if kind is type(part)), type(part).__name__)
