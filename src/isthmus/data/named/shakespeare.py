"""Shakespeare: 80 characters that a role speaks, and the one that follows; a role is a client.

The plays (public domain), divided among 1,130 roles by LEAF (BSD 2-Clause). Expected in the folder
`shakespeare` of the data root: `roles.json`, an object with `users`, the roles' names, and `text`,
what each one says in the whole play; or else LEAF's json files (`data/train` and `data/test`, or
`data/all_data`), whose x are windows of 80 characters and whose y are the characters that follow.

A symbol is its place in LEAF's alphabet of 80; any other character is symbol 80. A text of L
characters has L - 80 windows, one from every character on (`stride = 1`, as LEAF).

Windows overlap, so that a random split tests on what was trained on. By default a role's text is
split by time: its first 80 % of windows train, the next 10 % validate, the last 10 % test, and the
79 windows before each later part belong to none. This is LEAF's rule for the test part; as there,
the last training window's answer is the first character of the next part, and nothing else is
shared. A role whose text is too short for three parts is left out. Of 1,130 roles 660 remain.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from isthmus.data.arrays import TEST, TRAIN, VALIDATION, Arrays
from isthmus.data.file_errors import reading, refuse_missing
from isthmus.data.named import leaf
from isthmus.ranges import PositiveInt

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
UNKNOWN = len(ALPHABET)
LENGTH = 80  # of a window
GAP = LENGTH - 1  # windows before a later part that belong to none

Ends = Sequence[tuple[int, float]]  # parts in the order of time, and where each one ends
WHOLE: Ends = ((TRAIN, 0.8), (VALIDATION, 0.9), (TEST, 1.0))
TRAINED: Ends = ((TRAIN, 8 / 9), (VALIDATION, 1.0))  # where LEAF has put the test part aside
TESTED: Ends = ((TEST, 1.0),)


@dataclass(frozen=True)
class Shakespeare:
    """Shakespeare, the next of 80 characters, 81 symbols, a client per role; from --data-root."""

    stride: PositiveInt = 1  # from one window to the next; more leaves fewer windows
    split: Literal["time", "random"] = "time"

    clients: ClassVar[int] = 0
    model: ClassVar[str] = "stackedlstm"
    partition: ClassVar[str] = "natural"

    def load(self, root: Path, seed: int) -> Arrays:
        """Read the roles' texts if they are there, else LEAF's windows."""
        folder = root / "shakespeare"
        texts = [p for p in (folder / "roles.json", folder / "roles.json.gz") if p.is_file()]
        files = [] if texts else leaf.find_files(folder)
        if not texts and not files:
            places = "shakespeare/roles.json or shakespeare/data/train/*.json"
            raise refuse_missing("shakespeare", f"{places} below {root}", root)
        roles: dict[str, list[leaf.Block]] = {}
        for name, part, windows in _read_roles(texts[0]) if texts else _read_windows(files):
            roles.setdefault(name, []).extend(self._blocks(part, windows))
        timed, divided = self.split == "time", not texts and files[0][0] is not None
        parts = (TRAIN, VALIDATION, TEST) if timed else ()
        arrays = leaf.join_users(roles, (*ALPHABET, "unknown"), parts)
        return arrays._replace(tokens=True, split=arrays.split if timed or divided else None)

    def _blocks(self, part: int | None, windows: NDArray[np.uint8]) -> Iterator[leaf.Block]:
        """Yield a role's windows part by part, without a copy."""
        ends = {None: WHOLE, TRAIN: TRAINED, TEST: TESTED}[part]
        if self.split == "random":
            ends = ((part or TRAIN, 1.0),)
        begin = 0
        for name, share in ends:
            end = int(share * len(windows))
            first = -(-begin // self.stride) * self.stride
            own = windows[first : end : self.stride]
            yield leaf.Block(own[:, :LENGTH], own[:, LENGTH], np.full(len(own), name, np.int8))
            begin = end + GAP


def symbols(text: str) -> NDArray[np.uint8]:
    r"""Return each character's place in the alphabet.

    >>> symbols("\n z~é").tolist()
    [0, 1, 78, 80, 80]
    """
    table = np.full(129, UNKNOWN, np.uint8)
    table[[ord(character) for character in ALPHABET]] = np.arange(len(ALPHABET))
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    symbol_numbers: NDArray[np.uint8] = table[np.minimum(points, 128)]
    return symbol_numbers


RoleWindows = Iterator[tuple[str, int | None, NDArray[np.uint8]]]  # name, part, windows and answers


def _read_roles(path: Path) -> RoleWindows:
    table = leaf.read(path)
    with reading(path):
        for name in table["users"]:
            text = symbols(table["text"].pop(name))
            if len(text) > LENGTH:
                yield name, None, sliding_window_view(text, LENGTH + 1)


def _read_windows(files: Sequence[tuple[int | None, Path]]) -> RoleWindows:
    for share in leaf.shares(files):
        with share.reading():
            for strings, length in ((share.x, LENGTH), (share.y, 1)):
                wrong = next((text for text in strings if len(text) != length), None)
                if wrong is not None:
                    raise ValueError(f"{wrong[:60]!r} is no text of length {length}")
            windows = symbols("".join(share.x)).reshape(-1, LENGTH)
            windows = np.column_stack([windows, symbols("".join(share.y))])
        yield share.user, share.part, windows
