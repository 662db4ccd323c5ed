"""LEAF's json files, and what is common to the data sets that LEAF defines.

S. Caldas and others: LEAF, a benchmark for federated settings (2018). A file is an object with
`users`, a list of names, and `user_data`, each user's lists `x` and `y`. `num_samples` is not read:
LEAF counts in it windows of Shakespeare that its split left out. The files lie in `data/train` and
`data/test` where LEAF has split each user's examples, else in `data/all_data`; the folder `data`
may be missing. Every file may be gzipped.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import TEST, TRAIN, Arrays
from isthmus.data.file_errors import reading
from isthmus.errors import IsthmusError

REMAKE = "make the file again with LEAF"


class UserShare(NamedTuple):
    """What one file says of one user."""

    path: Path
    user: str
    part: int | None  # TRAIN or TEST, where LEAF has split the data
    x: list[Any]
    y: list[Any]

    def reading(self) -> AbstractContextManager[None]:
        """Return the context that names the file and the user if its examples cannot be read."""
        return reading(f"{self.path}, user {self.user!r}", REMAKE)


class Block(NamedTuple):
    """Examples of one user as arrays, and the part that each belongs to."""

    x: NDArray[Any]
    y: NDArray[Any]
    part: NDArray[np.int8]


def read(path: Path) -> Any:
    """Read a json file, gzipped or not."""
    with reading(path), gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        return json.load(file)


def find_files(folder: Path) -> Sequence[tuple[int | None, Path]]:
    """List LEAF's files below a folder, and to which part each belongs."""
    for place in (folder / "data", folder):
        train, test = _files(place / "train"), _files(place / "test")
        if bool(train) != bool(test):
            raise IsthmusError(
                f"{place} has json files in {'train' if train else 'test'} only; make both with "
                "LEAF's preprocess.sh -t sample"
            )
        if train:
            return [(TRAIN, path) for path in train] + [(TEST, path) for path in test]
        if whole := _files(place / "all_data"):
            return [(None, path) for path in whole]
    return []


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.json*") if path.suffix in (".json", ".gz"))


def shares(files: Sequence[tuple[int | None, Path]]) -> Iterator[UserShare]:
    """Read files one by one, and yield what each says of each of its users."""
    seen: set[tuple[int | None, str]] = set()
    for part, path in files:
        table = read(path)
        with reading(path, REMAKE):
            for user in table["users"]:
                own = table["user_data"].pop(str(user))
                if (part, user) in seen or len(own["x"]) != len(own["y"]):
                    raise ValueError(f"user {user!r} comes twice, or has fewer x than y")
                seen.add((part, user))
                yield UserShare(path, user, part, own["x"], own["y"])
    for user in sorted(user for part, user in seen if part == TEST and (TRAIN, user) not in seen):
        raise IsthmusError(
            f"user {user!r} has test examples and none to train on; make the files again with "
            "LEAF's preprocess.sh -t sample"
        )


def join_users(
    users: dict[str, list[Block]], labels: Iterable[str], parts: Sequence[int] = ()
) -> Arrays:
    """Join the users' blocks, one user after another in the order of their names.

    They are taken out of `users` to save memory. A user without examples, or with none in one of
    `parts`, is left out.
    """
    names = tuple(name for name in sorted(users) if _has_parts(users[name], parts))
    if not names:
        raise IsthmusError(
            f"none of {len(users)} users has examples for every part; get other files, or longer "
            "texts"
        )
    sizes = [sum(len(block.y) for block in users[name]) for name in names]
    first = users[names[0]][0]
    kind = np.result_type(*{block.x.dtype for name in names for block in users[name]})
    x = np.empty((sum(sizes), *first.x.shape[1:]), kind)
    y, part = np.empty(len(x), np.int64), np.empty(len(x), np.int8)
    row = 0
    for name in names:
        for block in users.pop(name):
            rows = slice(row, row := row + len(block.y))
            x[rows], y[rows], part[rows] = block
    owner, labels = np.repeat(np.arange(len(names)), sizes), tuple(labels)
    return Arrays(
        x, y, x[:0], y[:0], len(labels), owner=owner, names=names, split=part, labels=labels
    )


def _has_parts(blocks: Sequence[Block], parts: Sequence[int]) -> bool:
    part = np.concatenate([block.part for block in blocks])
    return len(part) > 0 and all((part == name).any() for name in parts)
