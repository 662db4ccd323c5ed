"""LEAF's json files, and what is common to the data sets that LEAF defines.

S. Caldas and others: LEAF, a benchmark for federated settings (2018). A file is an object with
`users`, a list of names, and `user_data`, each user's lists `x` and `y`. `num_samples` is not read:
LEAF counts in it windows of Shakespeare that its split left out. The files lie in `data/train` and
`data/test` where LEAF has split each user's examples, else in `data/all_data`; the folder `data`
may be missing. Every file may be gzipped.
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import TEST, TRAIN, Arrays
from isthmus.errors import IsthmusError
from isthmus.system.files import open_regular


class UserShare(NamedTuple):
    """What one file says of one user."""

    path: Path
    user: str
    part: int | None  # TRAIN or TEST, where LEAF has split the data
    x: list[Any]
    y: list[Any]

    def refuse(self, reason: str) -> IsthmusError:
        """Says what is wrong with it."""
        return IsthmusError(
            f"{self.path}, user {short(self.user)}: {reason}; make the file again with LEAF"
        )


class Block(NamedTuple):
    """Examples of one user as arrays, and the part that each belongs to."""

    x: NDArray[Any]
    y: NDArray[Any]
    part: NDArray[np.int8]


def short(value: object) -> str:
    """Shows a value from a file in a few words.

    >>> short("ROMEO"), short(["ROMEO"])
    ("'ROMEO'", 'of type list')
    """
    if not isinstance(value, str):
        return f"of type {type(value).__name__}"
    return repr(value if len(value) <= 60 else f"{value[:57]}...")


def read(path: Path) -> Any:
    """Reads a json file, gzipped or not."""
    try:
        with open_regular(path) as file:
            return json.load(gzip.open(file) if path.suffix == ".gz" else file)
    except RecursionError:
        reason: object = "its lists are nested too deeply"
    except (OSError, EOFError, zlib.error, ValueError) as error:
        reason = error
    raise IsthmusError(f"{path} cannot be read ({reason}); expected json; get the file again")


def find_files(folder: Path) -> Sequence[tuple[int | None, Path]]:
    """Lists LEAF's files below a folder, and to which part each belongs."""
    for place in (folder / "data", folder):
        train, test = _files(place / "train"), _files(place / "test")
        if bool(train) != bool(test):
            raise IsthmusError(
                f"{place} has json files in {'train' if train else 'test'} only; expected them in "
                "train and in test; make both with LEAF's preprocess.sh -t sample"
            )
        if train:
            return [(TRAIN, path) for path in train] + [(TEST, path) for path in test]
        if whole := _files(place / "all_data"):
            return [(None, path) for path in whole]
    return []


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.json*") if path.suffix in (".json", ".gz"))


def shares(files: Sequence[tuple[int | None, Path]]) -> Iterator[UserShare]:
    """Reads files one by one, and gives what each says of each of its users."""
    seen: set[tuple[int | None, str]] = set()
    for part, path in files:
        table = read(path)
        users, data = (
            (table.get("users"), table.get("user_data")) if isinstance(table, dict) else (0, 0)
        )
        if not (isinstance(users, list) and isinstance(data, dict)):
            raise IsthmusError(
                f"{path} has no list `users` and table `user_data`; expected a file as LEAF writes "
                "it; make it again with LEAF"
            )
        for user in users:
            if not isinstance(user, str) or (part, user) in seen:
                raise IsthmusError(
                    f"{path} names a user {short(user)} who is no text or was named before; "
                    "expected each name once; remove the files of LEAF's other runs"
                )
            seen.add((part, user))
            own = data.pop(user, None)
            x, y = (own.get("x"), own.get("y")) if isinstance(own, dict) else (0, 0)
            share = UserShare(path, user, part, x, y)  # type: ignore[arg-type]
            if not (isinstance(x, list) and isinstance(y, list) and len(x) == len(y)):
                raise share.refuse("expected lists x and y of one length")
            yield share
    for user in sorted(user for part, user in seen if part == TEST and (TRAIN, user) not in seen):
        raise IsthmusError(
            f"user {short(user)} has test examples only; expected every user's examples split; "
            "make the files again with LEAF's preprocess.sh -t sample"
        )


def join_users(
    users: dict[str, list[Block]], labels: Iterable[str], parts: Sequence[int] = ()
) -> Arrays:
    """Puts the users' blocks together, one user after another in the order of their names.

    Takes them out of `users` to save memory. A user without examples, or with none in one of
    `parts`, is left out.
    """
    names = tuple(name for name in sorted(users) if _has_parts(users[name], parts))
    if not names:
        raise IsthmusError(
            f"none of {len(users)} users has examples for every part; expected some; get other "
            "files, or longer texts"
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
