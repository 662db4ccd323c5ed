"""Own arrays in .npz and .safetensors files, joined to one data set. Nothing is unpickled."""

import reprlib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import TEST, TRAIN, VALIDATION, Arrays
from isthmus.data.own.cells import decode_texts, find_missing, merge_spellings, number_owners
from isthmus.data.own.own_files import ARRAYS, find_own_files, list_visible
from isthmus.errors import IsthmusError
from isthmus.ranges import Positive
from isthmus.system.files import open_regular
from isthmus.system.machine import free_memory

PARTS = {"train": TRAIN, "validation": VALIDATION, "test": TEST}
FEWEST = 1000  # classes that are believed, however few the examples
MOST = float(np.finfo(np.float32).max)


class Piece(NamedTuple):
    """Some examples of one owner, all in one part if the data are divided."""

    path: Path
    owner: str | None
    part: int | None
    x: NDArray[Any]
    y: NDArray[Any]
    weight: NDArray[np.float64] | None = None  # how much each counts in training, if that is said


def unpack_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Reads the arrays of an .npz file by their names, if there is memory for them."""
    with open_regular(path) as file:
        with zipfile.ZipFile(file) as members:
            needed = sum(member.file_size for member in members.infolist())
        if needed > (free_memory() or needed):
            raise ValueError(f"it unpacks to {needed / 1e6:,.0f} MB, more than there is memory")
        with np.load(file, allow_pickle=False) as arrays:
            return {name: np.asarray(arrays[name]) for name in arrays.files}


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Reads the arrays of an .npz or .safetensors file by their names."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.numpy import load_file

            open_regular(path).close()
            return load_file(path)
        return unpack_arrays(path)
    except Exception as error:  # what a damaged file makes a reader raise is anybody's guess
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise IsthmusError(
            f"{path} cannot be read ({reason}); expected an .npz or .safetensors file of arrays x "
            "and y; write it with np.savez(path, x=..., y=...)"
        ) from None


def read_pieces(path: Path, owner: str | None, part: int | None = None) -> list[Piece]:
    """Reads x and y of one owner, or train_x, train_y, test_x, ... where they are divided.

    A `weight`, or `train_weight`, says how much each example counts in training.
    """
    return _split_pieces(path, read_arrays(path), owner, part)


def _split_pieces(
    path: Path, arrays: Mapping[str, NDArray[Any]], owner: str | None, part: int | None
) -> list[Piece]:
    prefixes = {"": part} if part is not None else {"": None, **{f"{n}_": PARTS[n] for n in PARTS}}
    known = {p: part for p, part in prefixes.items() if {f"{p}x", f"{p}y"} <= set(arrays)}
    if not known or ("" in known and len(known) > 1):
        raise IsthmusError(
            f"{path} has arrays {', '.join(sorted(arrays)) or 'none'}; expected x and y, or "
            "train_x, train_y, test_x, test_y and perhaps validation_x, validation_y; name them so"
        )
    result = []
    for prefix, place in known.items():
        x, y = arrays[f"{prefix}x"], decode_texts(arrays[f"{prefix}y"])
        if x.ndim < 2 or y.ndim != 1 or len(x) != len(y):
            raise IsthmusError(
                f"{path} has {prefix}x of shape {x.shape} and {prefix}y of shape {y.shape}; "
                "expected a row of inputs and one label for each example; reshape them"
            )
        row = find_missing(y)
        if row is not None:
            raise IsthmusError(
                f"{path} has no label in row {row} of {prefix}y; expected one for each example; "
                "fill it, or delete the row"
            )
        weight = arrays.get(f"{prefix}weight")
        if weight is not None:
            weight = check_weights(weight, len(y), f"{path}: {prefix}weight")
        result.append(Piece(path, owner, place, x, y, weight))
    return result


def read_owners_file(path: Path, scale: float, like: Arrays | None = None) -> Arrays:
    """Reads one file of many owners: `client` says whose, `split` in which part an example is."""
    arrays = read_arrays(path)
    joined = join_pieces(_split_pieces(path, arrays, None, None), scale, like)
    for name in ("client", "split"):
        if name in arrays and arrays[name].shape != joined.y.shape:
            raise IsthmusError(
                f"{path} has {name} of shape {arrays[name].shape} for {len(joined.y)} examples; "
                "expected one for each; reshape it"
            )
    if "client" in arrays:
        owners = number_owners(arrays["client"], str(path))
        joined = joined._replace(
            owner=owners.numbers, names=owners.names, notes=joined.notes + owners.notes
        )
    if "split" in arrays:
        joined = joined._replace(split=number_parts(arrays["split"]))
    return joined


def number_parts(values: Sequence[Any] | NDArray[Any]) -> NDArray[np.int8]:
    """Turns train, validation and test, or 0, 1 and 2, into numbers of parts.

    >>> number_parts(["train", "test"]).tolist()
    [0, 2]
    """
    numbers = {**PARTS, **{str(number): number for number in PARTS.values()}}
    array = decode_texts(np.asarray(values))
    if array.dtype.kind not in "Uiuf":
        raise IsthmusError(
            f"the split has type {array.dtype}; expected train, validation or test, or 0, 1 or 2; "
            "convert it"
        )
    values = array.ravel().tolist()
    texts = {value: str(value).strip().lower() for value in values}  # few, however many the rows
    for row, value in enumerate(values, start=1):
        if texts[value] not in numbers:
            raise IsthmusError(
                f"the split says {reprlib.repr(texts[value])} in row {row}; expected train, "
                "validation or test; rename it"
            )
    if values and TRAIN not in map(numbers.__getitem__, texts.values()):
        raise IsthmusError(
            f"the split says {' or '.join(sorted(set(texts.values())))} in all {len(values)} rows; "
            "expected some that say train; correct it"
        )
    return np.array([numbers[texts[value]] for value in values], np.int8)


def join_pieces(pieces: Sequence[Piece], scale: float, like: Arrays | None = None) -> Arrays:
    """Joins pieces to one data set; labels that are words are numbered in their order."""
    if not sum(len(piece.y) for piece in pieces):
        raise IsthmusError("there are no examples; expected at least one; give other files")
    first = pieces[0]
    for piece in pieces:
        words = piece.y.dtype.kind == "U"
        if piece.x.shape[1:] != first.x.shape[1:] or words != (first.y.dtype.kind == "U"):
            raise IsthmusError(
                f"{piece.path} has inputs {piece.x.shape[1:]} and {piece.y.dtype} labels, "
                f"{first.path} {first.x.shape[1:]} and {first.y.dtype}; expected one kind; convert "
                "one of them"
            )
    x = to_native(np.concatenate([piece.x for piece in pieces]))
    y = np.concatenate([piece.y for piece in pieces])
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    if y.dtype.kind == "U":
        known, numbers = np.unique(y, return_inverse=True)
        spelled = merge_spellings(known.tolist(), "the labels", like.labels if like else ())
        labels = like.labels if like else tuple(sorted(set(spelled.names.values())))
        y = number_labels(spelled.names.values(), labels, first.path)[numbers]
        notes = spelled.notes
    names = sorted({piece.owner for piece in pieces if piece.owner is not None}, key=natural_order)
    number = {name: i for i, name in enumerate(names)}
    owner = [np.full(len(p.y), number[p.owner]) for p in pieces if p.owner is not None]
    split = [np.full(len(p.y), TRAIN if p.part is None else p.part, np.int8) for p in pieces]
    check_usable(x, y, may_lack=like is not None and any(c.fills for c in like.columns))
    joined = Arrays(
        x,
        y.astype(np.int64),
        x[:0],
        np.zeros(0, np.int64),
        classes=len(labels) or int(y.max()) + 1,
        scale=scale,
        owner=np.concatenate(owner) if owner else None,
        names=tuple(names),
        split=np.concatenate(split) if any(p.part is not None for p in pieces) else None,
        labels=labels,
        weight=_join_weights(pieces),
        notes=notes,
    )
    check_range(joined)
    return joined


def _join_weights(pieces: Sequence[Piece]) -> NDArray[np.float64] | None:
    """Joins how much examples count: for all that are trained on, or for none."""
    if all(piece.weight is None for piece in pieces):
        return None
    trained = [piece for piece in pieces if piece.part in (None, TRAIN)]
    lacking = next((piece for piece in trained if piece.weight is None), None)
    if lacking is not None:
        raise IsthmusError(
            f"{lacking.path} has no weight, and other files have; expected one in each file of "
            "training examples, or in none; add np.ones where all count alike"
        )
    return np.concatenate([np.ones(len(p.y)) if p.weight is None else p.weight for p in pieces])


def to_native(values: NDArray[Any]) -> NDArray[Any]:
    """Gives numbers in the order of bytes that the machine has, which is all that torch takes."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def number_labels(texts: Iterable[str], labels: Sequence[str], path: Path) -> NDArray[np.int64]:
    """Numbers labels that are words."""
    number: Mapping[str, int] = {label: i for i, label in enumerate(labels)}
    try:
        return np.array([number[text] for text in texts], np.int64)
    except KeyError as error:
        raise IsthmusError(
            f"{path} has the label {reprlib.repr(error.args[0])}; expected one of "
            f"{reprlib.repr(list(labels)) if labels else 'the numbers of the classes'}; correct it"
        ) from None


def natural_order(text: str) -> tuple[bool, float, str]:
    """Orders numbers by their size, and words after them.

    >>> sorted(["10", "9", "b", "a"], key=natural_order)
    ['9', '10', 'a', 'b']
    """
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    return (False, number, text) if np.isfinite(number) else (True, 0.0, text)


def check_usable(x: NDArray[Any], y: NDArray[Any], may_lack: bool = False) -> None:
    """Refuses inputs that are no numbers a network takes, and labels that are not 0, 1, ...

    Inputs that are missing, nan, pass where they `may_lack`: they are filled in later.
    """
    if y.ndim != 1 or y.dtype.kind not in "iu" or y.min(initial=0) < 0:
        raise IsthmusError(
            f"labels have type {y.dtype} and shape {y.shape}; expected whole numbers 0, 1, ... "
            "one per example; number the classes with np.unique(labels, return_inverse=True)"
        )
    if y.max(initial=0) >= max(len(y), FEWEST):
        raise IsthmusError(
            f"labels go up to {y.max()} in {len(y)} examples; expected classes 0, 1, ...; number "
            "them with np.unique(labels, return_inverse=True)"
        )
    if x.dtype.kind not in "iuf" or x.dtype.itemsize > 8:
        raise IsthmusError(
            f"inputs have type {x.dtype}; expected numbers of at most 64 bits; convert them, for "
            "example with x.astype(np.float32)"
        )
    if 0 in x.shape[1:]:
        raise IsthmusError(
            f"inputs have shape {x.shape[1:]}; expected at least one number each; give them some"
        )
    if x.dtype.kind == "f" and not (np.isfinite(x) | (np.isnan(x) & may_lack)).all():
        raise IsthmusError("inputs hold nan or infinity; expected numbers; fill or drop them")


def check_weights(weights: Any, count: int, where: str) -> NDArray[np.float64]:
    """Refuses weights of examples that are not one number of 0 or more for each."""
    given = np.asarray(weights)
    if given.shape != (count,) or given.dtype.kind not in "iuf":
        raise IsthmusError(
            f"{where} of shape {given.shape} and type {given.dtype} for {count} examples; expected "
            "a number for each; reshape it"
        )
    wrong = np.flatnonzero(~((given >= 0) & (given < MOST)))
    if len(wrong):
        raise IsthmusError(
            f"{where} is {given[wrong[0]]} in row {wrong[0] + 1}; expected a number of 0 or more; "
            "correct it"
        )
    return given.astype(np.float64)


def check_range(arrays: Arrays) -> None:
    """Refuses inputs that are beyond 32-bit numbers once they are scaled as a network sees them.

    Tokens are not scaled, but looked up: they are places of a list.
    """
    given = [x for x in (arrays.x, arrays.test_x) if x.size]
    if arrays.tokens and any(x.dtype.kind not in "iu" or x.min() < 0 for x in given):
        least = min(x.min() for x in given)
        raise IsthmusError(
            f"tokens have type {arrays.x.dtype} and go down to {least}; expected whole numbers "
            "0, 1, ...; number the symbols"
        )
    bounds = [(np.fmin.reduce(x, None), np.fmax.reduce(x, None)) for x in given]  # but for nan
    largest = max(abs(float(bound)) for pair in bounds for bound in pair)
    seen = largest / arrays.scale if arrays.x.dtype.kind in "iu" else largest
    if arrays.std:
        seen = (seen + max(map(abs, arrays.mean))) / min(arrays.std)
    if seen > MOST:
        raise IsthmusError(
            f"inputs go up to {largest:.3g}, scaled {seen:.3g}; expected them below "
            f"{MOST:.2g}; divide them, or set another scale"
        )


@dataclass(frozen=True)
class Files:
    """Own arrays in .npz or .safetensors: one file per client, or one with x, y and client."""

    path: str = ""
    scale: Positive = 1.0  # whole-number inputs are divided by it
    tokens: bool = False  # whole-number inputs are symbols, which a network looks up

    clients: ClassVar[int] = 0
    model: ClassVar[str] = "mlp"
    partition: ClassVar[str] = "natural"

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the files."""
        return self.like(find_own_files(self.path, root), None)

    def like(self, path: Path, other: Arrays | None) -> Arrays:
        """Reads files, with the classes of other data if there are any."""
        arrays = self._read(path, other)._replace(tokens=self.tokens)
        if self.tokens:
            check_range(arrays)
        return arrays

    def _read(self, path: Path, other: Arrays | None) -> Arrays:
        if path.is_file():
            return read_owners_file(path, self.scale, other)
        clients = list_visible(path)
        for file in clients:
            if file.suffix not in ARRAYS:
                raise IsthmusError(
                    f"{file} lies among clients' files; expected one .npz or .safetensors per "
                    "client and nothing else; move it away"
                )
        return join_pieces(
            [p for file in clients for p in read_pieces(file, file.stem)], self.scale, other
        )
