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
from isthmus.data.file_errors import reading
from isthmus.data.own.cells import (
    decode_texts,
    merge_spellings,
    natural_order,
    number_owners,
    refuse_missing_values,
)
from isthmus.data.own.own_files import ARRAYS, find_own_files, list_visible
from isthmus.errors import IsthmusError
from isthmus.ranges import Positive
from isthmus.system.machine import free_memory

SPLITS = {"train": TRAIN, "validation": VALIDATION, "test": TEST}
FEWEST = 1000  # classes that are believed, however few the examples
MOST = float(np.finfo(np.float32).max)


class Piece(NamedTuple):
    """Some examples of one owner, all in one split if the data are divided."""

    path: Path
    owner: str | None
    split: int | None
    x: NDArray[Any]
    y: NDArray[Any]
    weight: NDArray[np.float64] | None = None  # how much each counts in training, if that is said


def unpack_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file by their names, if there is memory for them."""
    with zipfile.ZipFile(path) as members:
        needed = sum(member.file_size for member in members.infolist())
    if needed > (free_memory() or needed):
        raise ValueError(f"it unpacks to {needed / 1e6:,.0f} MB, more than there is memory")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: np.asarray(arrays[name]) for name in arrays.files}


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz or .safetensors file by their names."""
    with reading(path, "write it again with np.savez(path, x=..., y=...)"):
        if path.suffix == ".safetensors":
            from safetensors.numpy import load_file

            return load_file(path)
        return unpack_arrays(path)


def read_pieces(path: Path, owner: str | None, split: int | None = None) -> list[Piece]:
    """Read x and y of one owner, or train_x, train_y, test_x, ... where they are divided.

    A `weight`, or `train_weight`, says how much each example counts in training.
    """
    return _split_pieces(path, read_arrays(path), owner, split)


def _split_pieces(
    path: Path, arrays: Mapping[str, NDArray[Any]], owner: str | None, split: int | None
) -> list[Piece]:
    prefixes = {"": split} | ({} if split is not None else {f"{n}_": SPLITS[n] for n in SPLITS})
    known = {p: each for p, each in prefixes.items() if {f"{p}x", f"{p}y"} <= set(arrays)}
    if not known or ("" in known and len(known) > 1):
        raise IsthmusError(
            f"{path} has arrays {', '.join(sorted(arrays)) or 'none'}; name them x and y, or "
            "train_x, train_y, test_x, test_y and perhaps validation_x, validation_y"
        )
    result = []
    for prefix, place in known.items():
        x, y = arrays[f"{prefix}x"], decode_texts(arrays[f"{prefix}y"])
        if x.ndim < 2 or y.ndim != 1 or len(x) != len(y):
            raise IsthmusError(
                f"{path} has {prefix}x of shape {x.shape} and {prefix}y of shape {y.shape}, not a "
                "row of inputs and one label for each example; reshape them"
            )
        refuse_missing_values(y, f"{prefix}y in {path}", "label")
        weight = arrays.get(f"{prefix}weight")
        if weight is not None:
            weight = check_weights(weight, len(y), f"{path}: {prefix}weight")
        result.append(Piece(path, owner, place, x, y, weight))
    return result


def number_splits(values: Sequence[Any] | NDArray[Any]) -> NDArray[np.int8]:
    """Turn train, validation and test, or 0, 1 and 2, into numbers of splits.

    >>> number_splits(["train", "test"]).tolist()
    [0, 2]
    """
    numbers = {**SPLITS, **{str(number): number for number in SPLITS.values()}}
    given = decode_texts(np.asarray(values))
    known, rows = np.unique(given.ravel().astype(str), return_inverse=True)
    words = [word.strip().lower() for word in known.tolist()]
    wrong = [place for place, word in enumerate(words) if word not in numbers]
    if wrong:
        row = int(np.argmax(np.isin(rows, wrong)))
        raise IsthmusError(
            f"the split is {reprlib.repr(words[rows[row]])} in row {row + 1}; it must be train, "
            "validation or test"
        )
    places = np.array([numbers[word] for word in words], np.int8)
    if len(places) and TRAIN not in places:
        raise IsthmusError(
            f"the split is {' or '.join(words)} in all {len(rows)} rows; some must be train"
        )
    return places[rows]


def join_pieces(pieces: Sequence[Piece], scale: float, like: Arrays | None = None) -> Arrays:
    """Join pieces to one data set; labels that are words are numbered in their order."""
    if not sum(len(piece.y) for piece in pieces):
        raise IsthmusError("there are no examples; give other files")
    first = pieces[0]
    for piece in pieces:
        words = piece.y.dtype.kind == "U"
        if piece.x.shape[1:] != first.x.shape[1:] or words != (first.y.dtype.kind == "U"):
            raise IsthmusError(
                f"{piece.path} has inputs {piece.x.shape[1:]} and {piece.y.dtype} labels, "
                f"{first.path} {first.x.shape[1:]} and {first.y.dtype}; make them alike"
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
    split = [np.full(len(p.y), TRAIN if p.split is None else p.split, np.int8) for p in pieces]
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
        split=np.concatenate(split) if any(p.split is not None for p in pieces) else None,
        labels=labels,
        weight=_join_weights(pieces),
        notes=notes,
    )
    check_range(joined)
    return joined


def _join_weights(pieces: Sequence[Piece]) -> NDArray[np.float64] | None:
    """Join how much examples count: for all that are trained on, or for none."""
    if all(piece.weight is None for piece in pieces):
        return None
    trained = [piece for piece in pieces if piece.split in (None, TRAIN)]
    lacking = next((piece for piece in trained if piece.weight is None), None)
    if lacking is not None:
        raise IsthmusError(
            f"{lacking.path} has no weight, and other files have; add np.ones where all count alike"
        )
    return np.concatenate([np.ones(len(p.y)) if p.weight is None else p.weight for p in pieces])


def to_native(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers in the order of bytes that the machine has, which is all that torch takes."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def number_labels(texts: Iterable[str], labels: Sequence[str], path: Path) -> NDArray[np.int64]:
    """Assign numbers to labels that are words."""
    number: Mapping[str, int] = {label: i for i, label in enumerate(labels)}
    try:
        return np.array([number[text] for text in texts], np.int64)
    except KeyError as error:
        known = reprlib.repr(list(labels)) if labels else "the numbers of the classes"
        raise IsthmusError(
            f"{path} has the label {reprlib.repr(error.args[0])}, which is not one of {known}"
        ) from None


def check_usable(x: NDArray[Any], y: NDArray[Any], may_lack: bool = False) -> None:
    """Refuse inputs that are no numbers a network takes, and labels that are not 0, 1, ...

    Inputs that are missing, nan, pass where they `may_lack`: they are filled in later.
    """
    if y.ndim != 1 or y.dtype.kind not in "iu" or y.min(initial=0) < 0:
        given = f"have type {y.dtype} and shape {y.shape}"
    elif y.max(initial=0) >= max(len(y), FEWEST):
        given = f"go up to {y.max()} in {len(y)} examples"
    else:
        given = ""
    if given:
        raise IsthmusError(
            f"labels {given}; number the classes 0, 1, ... with np.unique(labels, "
            "return_inverse=True)"
        )
    if x.dtype.kind not in "iuf" or x.dtype.itemsize > 8:
        raise IsthmusError(
            f"inputs have type {x.dtype}, not numbers of at most 64 bits; convert them, for "
            "example with x.astype(np.float32)"
        )
    if 0 in x.shape[1:]:
        raise IsthmusError(f"inputs have shape {x.shape[1:]}: no number each")
    if x.dtype.kind == "f" and not (np.isfinite(x) | (np.isnan(x) & may_lack)).all():
        raise IsthmusError("inputs have nan or infinity; fill or drop them")


def check_weights(weights: Any, count: int, where: str) -> NDArray[np.float64]:
    """Refuse weights of examples that are not one number of 0 or more for each."""
    given = np.asarray(weights)
    if given.shape != (count,) or given.dtype.kind not in "iuf":
        raise IsthmusError(
            f"{where} of shape {given.shape} and type {given.dtype} is not a number for each of "
            f"{count} examples"
        )
    wrong = np.flatnonzero(~((given >= 0) & (given < MOST)))
    if len(wrong):
        raise IsthmusError(
            f"{where} is {given[wrong[0]]} in row {wrong[0] + 1}, not a number of 0 or more"
        )
    return given.astype(np.float64)


def check_range(arrays: Arrays) -> None:
    """Refuse inputs that are beyond 32-bit numbers once they are scaled as a network sees them.

    Tokens are not scaled, but looked up: they are places of a list.
    """
    given = [x for x in (arrays.x, arrays.test_x) if x.size]
    if arrays.tokens and any(x.dtype.kind not in "iu" or x.min() < 0 for x in given):
        least = min(x.min() for x in given)
        raise IsthmusError(
            f"tokens have type {arrays.x.dtype} and go down to {least}; number symbols 0, 1, ..."
        )
    bounds = [(np.fmin.reduce(x, None), np.fmax.reduce(x, None)) for x in given]  # but for nan
    largest = max(abs(float(bound)) for pair in bounds for bound in pair)
    seen = largest / arrays.scale if arrays.x.dtype.kind in "iu" else largest
    if arrays.std:
        seen = (seen + max(map(abs, arrays.mean))) / min(arrays.std)
    if seen > MOST:
        raise IsthmusError(
            f"inputs go up to {largest:.3g}, scaled {seen:.3g}, more than {MOST:.2g}; divide them, "
            "or set another scale"
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
        """Read the files."""
        return self.like(find_own_files(self.path, root), None)

    def like(self, path: Path, other: Arrays | None) -> Arrays:
        """Read files, with the classes of other data if there are any."""
        if path.is_file():
            arrays = self._read_owners(path, other)
        else:
            files = list_visible(path)
            for file in files:
                if file.suffix not in ARRAYS:
                    raise IsthmusError(
                        f"{file} lies among clients' files, which end in {' or '.join(ARRAYS)}; "
                        "move it away"
                    )
            pieces = [piece for file in files for piece in read_pieces(file, file.stem)]
            arrays = join_pieces(pieces, self.scale, other)
        arrays = arrays._replace(tokens=self.tokens)
        check_range(arrays)
        return arrays

    def _read_owners(self, path: Path, other: Arrays | None) -> Arrays:
        """Read one file of many owners: `client` says whose, `split` in which split one is."""
        given = read_arrays(path)
        arrays = join_pieces(_split_pieces(path, given, None, None), self.scale, other)
        for name in ("client", "split"):
            if name in given and given[name].shape != arrays.y.shape:
                raise IsthmusError(
                    f"{path} has {name} of shape {given[name].shape}, not one for each of "
                    f"{len(arrays.y)} examples"
                )
        if "client" in given:
            names, numbers, notes = number_owners(given["client"], str(path))
            arrays = arrays._replace(owner=numbers, names=names, notes=arrays.notes + notes)
        if "split" in given:
            arrays = arrays._replace(split=number_splits(given["split"]))
        return arrays
