"""A federation: one data set, divided among clients, each with three splits of its own."""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import CLIENT, REFUSE, SUMS, TEST, TRAIN, VALIDATION, Arrays, Column
from isthmus.data.own.arrays import (
    check_range,
    check_usable,
    check_weights,
    number_splits,
    to_native,
)
from isthmus.data.own.cells import number_owners
from isthmus.data.scaling import Scales, find_scales
from isthmus.errors import IsthmusError
from isthmus.ranges import count_share
from isthmus.streams import stream

if TYPE_CHECKING:
    from torch import Tensor

Indices = NDArray[np.int64]


class Split(NamedTuple):
    """Examples ready for a network: inputs as floating-point numbers, labels as class numbers."""

    x: "Tensor"
    y: "Tensor"


class Splits(NamedTuple):
    """One client's indices: what it trains on, what it chooses on, what it is tested on."""

    train: Indices
    validation: Indices
    test: Indices


class PackedSplits(Sequence[Splits]):
    """The indices of all clients in one array, from which a client's are cut when it is looked at.

    >>> two = [Splits(*np.arange(3)[:, None]), Splits(*np.arange(6).reshape(3, 2))]
    >>> PackedSplits.pack(two)[1].test
    array([4, 5])
    """

    def __init__(self, rows: Indices, ends: Indices):
        self.rows = rows
        self.ends = ends  # [3 N + 1]: where each part of each client begins, and the last one ends

    @classmethod
    def pack(cls, parts: Sequence[Splits]) -> "PackedSplits":
        """Pack the indices of clients."""
        flat = [rows for part in parts for rows in part]
        ends = np.cumsum([0, *map(len, flat)], dtype=np.int64)
        return cls(np.concatenate([np.zeros(0, np.int64), *flat]), ends)

    def __len__(self) -> int:
        return len(self.ends) // 3

    def __getitem__(self, i: Any) -> Any:
        if not 0 <= i < len(self):
            raise IndexError(i)
        ends = self.ends[3 * i : 3 * i + 4].tolist()
        return Splits(*(self.rows[begin:end] for begin, end in pairwise(ends)))


class Federation:
    """The clients' data: compact arrays, and per client the rows of its three splits.

    >>> x, y = np.zeros((40, 3), np.float32), np.arange(40) % 2
    >>> federation = Federation.of(x, y, clients=np.repeat([0, 1], 20), seed=1)
    >>> len(federation), federation.sizes(0)
    (2, (15, 1, 4))
    """

    def __init__(
        self,
        arrays: Arrays,
        splits: Sequence[Splits],
        shares: Mapping[str, float] | None = None,
        notes: Sequence[str] = (),
        names: Sequence[str] = (),
        scales: Scales | None = None,
    ):
        self.arrays = arrays
        self.splits = splits
        self.shares = dict(shares or {})  # "test" and "validation", where they are known
        self.notes = tuple(notes)  # what its data lack, what its partition relaxed
        self.names = tuple(names)  # of the clients, where they have any
        self._digest: str | None = None
        self._scales = scales  # of all clients alike, where their inputs are scaled so
        self._own_scales: dict[int, Scales] = {}  # of each client, where they are scaled so
        self.classes = arrays.classes
        self.shape: tuple[int, ...] = arrays.x.shape[1:]

    @classmethod
    def of(
        cls,
        x: NDArray[Any],
        y: NDArray[Any],
        clients: NDArray[Any],
        *,
        test: float = 0.2,
        validation: float = 0.1,
        seed: int = 0,
        server_test: tuple[NDArray[Any], NDArray[Any]] | None = None,
        split: Sequence[Any] | NDArray[Any] | None = None,
        labels: Sequence[str] = (),
        weights: NDArray[Any] | None = None,
        tokens: bool = False,
    ) -> "Federation":
        """Build a federation of own arrays: inputs, labels 0..C-1, and whose each example is.

        `clients` may hold anything that sorts: numbers or names; client 0 is the first of them.
        `split` says "train", "validation" or "test" of each example that came divided; `labels`
        are names of the classes; `weights` say how much each example counts in training. Inputs
        that are `tokens`, whole numbers 0, 1, ..., reach the network as such, to be looked up.
        """
        x, y, clients = to_native(np.asarray(x)), np.asarray(y), np.asarray(clients)
        held = (x[:0], y[:0]) if server_test is None else server_test
        held_x, held_y = to_native(np.asarray(held[0])), np.asarray(held[1])
        if not len(x) == len(y) == len(clients):
            raise IsthmusError(
                f"{len(x)} inputs, {len(y)} labels and {len(clients)} client ids; give one of each "
                "for every example"
            )
        if not len(x):
            raise IsthmusError("there are no examples; give rows of inputs")
        if len(held_x) != len(held_y) or held_x.shape[1:] != x.shape[1:]:
            raise IsthmusError(
                f"server_test has inputs {held_x.shape} and labels {held_y.shape}; give as many of "
                f"each, and inputs like the clients' {x.shape}"
            )
        check_usable(x, y)
        check_usable(held_x, held_y)
        classes = int(max(y.max(), held_y.max(initial=0))) + 1
        if labels and len(labels) < classes:
            raise IsthmusError(f"{len(labels)} names for {classes} classes; give one for each")
        part = None if split is None else number_splits(split)
        if part is not None and len(part) != len(y):
            raise IsthmusError(f"split has {len(part)} entries for {len(y)} examples")
        owners = number_owners(clients, "clients")
        arrays = Arrays(
            x,
            y.astype(np.int64),
            held_x,
            held_y.astype(np.int64),
            classes=len(labels) or classes,
            owner=owners.numbers,
            names=owners.names,
            split=part,
            labels=tuple(labels),
            weight=None if weights is None else check_weights(weights, len(y), "weights"),
            tokens=tokens,
            notes=owners.notes,
        )
        check_range(arrays)
        return cls.from_owners(arrays, test, validation, seed)

    @classmethod
    def from_owners(cls, arrays: Arrays, test: float, validation: float, seed: int) -> "Federation":
        """Build a federation in which every owner is a client; without owners, all is one's."""
        owner = np.zeros(len(arrays.y), np.int64) if arrays.owner is None else arrays.owner
        shares = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner))[:-1])
        parts = divide(shares, test, validation, seed, arrays.split)
        cut = {"test": test, "validation": validation}
        return cls(arrays, parts, cut, arrays.notes, arrays.names)

    def __len__(self) -> int:
        return len(self.splits)

    def limit_training(self, shots: int, seed: int) -> "Federation":
        """Leave every client at most `shots` of its training examples, drawn at random."""
        parts = []
        for i, part in enumerate(self.splits):
            drawn = stream(seed, "shots", i).permutation(part.train)[:shots]
            parts.append(part._replace(train=np.sort(drawn)))
        few = self.replace(splits=parts)
        return few.scale_by(self.scales(0)) if self.arrays.scaled_by == SUMS else few

    def split_off_newcomers(self, share: float, seed: int) -> tuple["Federation", "Federation"]:
        """Divide the clients into those that train and those that come later."""
        order = stream(seed, "held out").permutation(len(self))
        later = order[: count_share(share, len(self))]
        training, newcomers = (
            self._only(sorted(ids)) for ids in (set(range(len(self))) - set(later), later)
        )
        if self.arrays.scaled_by == SUMS:
            newcomers = newcomers.scale_by(training.scales(0))
        return training, newcomers

    def _only(self, ids: Sequence[int]) -> "Federation":
        names = [self.names[i] for i in ids] if self.names else ()
        return self.replace(splits=[self.splits[i] for i in ids], names=names)

    def replace(self, **changes: Any) -> "Federation":
        """Return a copy in which some arguments of the constructor are others."""
        given: dict[str, Any] = {"arrays": self.arrays, "splits": self.splits}
        given |= {"shares": self.shares, "notes": self.notes, "names": self.names}
        return Federation(**given | {"scales": self._scales} | changes)

    def scales(self, i: int) -> Scales | None:
        """Return what client i's inputs are scaled by, where that is learned from clients' data."""
        arrays = self.arrays
        if not arrays.scaled_by or self._scales is not None:
            return self._scales
        alone = arrays.scaled_by == CLIENT
        if alone and i in self._own_scales:
            return self._own_scales[i]
        shares = [self.splits[i]] if alone else self.splits
        inputs = [np.asarray(arrays.x[part.train], np.float64) for part in shares]
        found = find_scales(arrays.columns, [x for x in inputs if len(x)])
        if alone:
            self._own_scales[i] = found
        else:
            self._scales = found
        return found

    def scale_by(self, scales: Scales | None) -> "Federation":
        """Return a copy with these scales for all clients, whatever they train on."""
        return self.replace(scales=scales)

    def columns(self, i: int) -> tuple[Column, ...]:
        """Return the columns of client i's inputs, with what they are scaled by."""
        scales = self.scales(i)
        if scales is None:
            return self.arrays.columns
        rows = zip(self.arrays.columns, *(numbers.tolist() for numbers in scales), strict=True)
        return tuple(
            column._replace(mean=mean, std=std, fill=fill if column.fills else None)
            for column, mean, std, fill in rows
        )

    def pack(self) -> "Federation":
        """Return a copy with all indices in one array, which is quick to send."""
        if self.arrays.scaled_by == SUMS:
            self.scales(0)  # found once, for everybody who gets it
        return self.replace(splits=PackedSplits.pack(self.splits))

    def name(self, i: int) -> str | None:
        """Return client i's name, if it has one."""
        return self.names[i] if self.names else None

    def split(self, i: int, name: str) -> Split:
        """Return one split (train, validation or test) of client i."""
        return self.take(i, getattr(self.splits[i], name))

    def take(self, i: int, rows: Indices) -> Split:
        """Return some of client i's examples, by their rows in the arrays."""
        return self._prepare(self.arrays.x[rows], self.arrays.y[rows], self.scales(i))

    def weights(self, i: int) -> NDArray[np.float64] | None:
        """Return how much each of client i's training examples counts, where the data say so."""
        given = self.arrays.weight
        return None if given is None else given[self.splits[i].train]

    def server_test(self) -> Split:
        """Return the server's own test set."""
        return self._prepare(self.arrays.test_x, self.arrays.test_y)

    def sizes(self, i: int) -> tuple[int, int, int]:
        """Count client i's training, validation and test examples."""
        train, validation, test = self.splits[i]
        return len(train), len(validation), len(test)

    def label_counts(self, i: int) -> NDArray[np.int64]:
        """Count client i's examples of each class, over all three splits."""
        return np.bincount(self.arrays.y[np.concatenate(self.splits[i])], minlength=self.classes)

    def count_holdings(self, i: int) -> tuple[int, int, int, list[int]]:
        """Count the examples of client i by split, and by class."""
        return *self.sizes(i), self.label_counts(i).tolist()

    def digest(self) -> str:
        """Return the name of the data and its division: equal names, equal federations."""
        if self._digest is None:  # it looks at every client
            self._digest = self._compute_digest()
        return self._digest

    def _compute_digest(self) -> str:
        sha = hashlib.sha256(f"{self.classes}:{self.arrays.scale}:".encode())
        seen = (self.arrays.mean, self.arrays.std, self.arrays.tokens)
        sha.update(f"{seen}".encode() if any(seen) else b"")
        sha.update(self.arrays.scaled_by.encode())
        rules = [(column.missing, column.scaled) for column in self.arrays.columns]
        learned = self.arrays.scaled_by and set(rules) != {(REFUSE, True)}
        sha.update(f"{rules}".encode() if learned else b"")
        weight = () if self.arrays.weight is None else (self.arrays.weight,)
        for array in (*self.arrays[:4], *weight):
            sha.update(f"{array.dtype}{array.shape}".encode())
            sha.update(np.ascontiguousarray(array).data)
        for parts in self.splits:
            for rows in parts:
                sha.update(f"{len(rows)}:".encode())
                sha.update(np.ascontiguousarray(rows, dtype="<i8").data)
        return sha.hexdigest()[:16]

    def _prepare(self, x: NDArray[Any], y: Indices, scales: Scales | None = None) -> Split:
        import torch

        labels = torch.as_tensor(np.array(y))
        x = x if scales is None else scales.apply(np.asarray(x, np.float64))
        if self.arrays.tokens:
            return Split(torch.as_tensor(np.array(x, np.int64)), labels)
        inputs = torch.as_tensor(np.array(x)).to(torch.get_default_dtype())
        if np.issubdtype(x.dtype, np.integer):
            inputs = inputs / self.arrays.scale
        if self.arrays.mean:
            inputs = (inputs - self._per_channel("mean")) / self._per_channel("std")
        return Split(inputs, labels)

    def _per_channel(self, name: str) -> "Tensor":
        import torch

        numbers = torch.tensor(getattr(self.arrays, name), dtype=torch.get_default_dtype())
        return numbers.view(-1, *[1] * (len(self.shape) - 1))


def divide(
    shares: list[Indices],
    test: float,
    validation: float,
    seed: int,
    split: NDArray[np.int8] | None = None,
) -> list[Splits]:
    """Cut each client's share at random into training, validation and test splits.

    The test split has floor(test * n) examples; of the rest, a share `validation` (at least one
    example where it is not 0) is set aside for choosing. Where a `split` says which part an example
    belongs to it stays there; a client that it leaves without a part gets that part cut as above.
    """
    for name, value, least in (("test", test, 1e-9), ("validation", validation, 0)):
        if not least <= value < 1:
            raise IsthmusError(f"{name}={value:g} is no share below 1; for example {name}=0.2")
    return [cut_splits(share, test, validation, seed, i, split) for i, share in enumerate(shares)]


def cut_splits(
    share: Indices,
    test: float,
    validation: float,
    seed: int,
    i: int,
    split: NDArray[np.int8] | None,
) -> Splits:
    """Cut the share of client i, independently of all others."""
    rows = stream(seed, "parts", i).permutation(share)
    free, chosen, held = _sort_by_split(rows, split)
    cut = _count_splits(len(free), len(chosen), len(held), test, validation)
    if cut is None:
        raise IsthmusError(
            f"client {i} has {len(rows)} examples, too few for test={test:g} and "
            f"validation={validation:g}; lower clients, or change the shares"
        )
    for_test, for_choice = cut
    # Ascending order inside a part: what follows draws its own batches anyway.
    return Splits(
        np.sort(free[for_test + for_choice :]),
        np.sort(np.concatenate([chosen, free[for_test : for_test + for_choice]])),
        np.sort(np.concatenate([held, free[:for_test]])),
    )


def fills_splits(
    share: Indices, test: float, validation: float, split: NDArray[np.int8] | None = None
) -> bool:
    """Whether a client's examples fill its three splits."""
    free, chosen, held = _sort_by_split(share, split)
    return _count_splits(len(free), len(chosen), len(held), test, validation) is not None


def _sort_by_split(rows: Indices, split: NDArray[np.int8] | None) -> Splits:
    """Sort rows by the split that they came in; what came in none is free to train on."""
    part = np.zeros(len(rows), np.int8) if split is None else split[rows]
    return Splits(*(rows[part == name] for name in (TRAIN, VALIDATION, TEST)))


def _count_splits(
    free: int, chosen: int, held: int, test: float, validation: float
) -> tuple[int, int] | None:
    """Count how many free examples to test and to choose on; None where a split stays empty."""
    for_test = 0 if held else count_share(test, free)
    wanted = validation and not chosen
    for_choice = max(1, count_share(validation, free - for_test)) if wanted else 0
    if for_test + for_choice >= free or not (for_test or held):
        return None
    return for_test, for_choice


class PooledFederation(Federation):
    """A single client, whose training examples are those that were drawn from all clients'."""

    def __init__(self, source: Federation, drawn: Mapping[int, Indices]):
        nothing = np.zeros(0, np.int64)
        rows = np.concatenate([*drawn.values()])
        Federation.__init__(self, source.arrays, [Splits(rows, nothing, nothing)])
        self._source, self._drawn = source, drawn

    def split(self, i: int, name: str) -> Split:
        """Return its training examples, each scaled as at the client it comes from."""
        if name != "train":
            return Federation.split(self, i, name)
        import torch

        taken = [self._source.take(owner, rows) for owner, rows in self._drawn.items()]
        return Split(*(torch.cat(tensors) for tensors in zip(*taken, strict=True)))


def pool(federation: Federation, size: int, seed: int, t: int) -> PooledFederation:
    """Draw so many of all clients' training examples for round t, without replacement."""
    trained = [parts.train for parts in federation.splits]
    ends = np.cumsum([len(rows) for rows in trained])
    places = np.sort(stream(seed, "pool", t).permutation(ends[-1])[:size])
    shares = np.split(places, np.searchsorted(places, ends[:-1]))
    drawn = {
        i: rows[some - (end - len(rows))]
        for i, (rows, end, some) in enumerate(zip(trained, ends, shares, strict=True))
        if len(some)
    }
    return PooledFederation(federation, drawn)
