"""Label noise by name: every label is redrawn from its row of a transition matrix T.

    T_ij = P(the label becomes j | it is i), C classes, rate e
    pair         T_ii = 1 - e, T_ij = e for j = i + 1 mod C
    symmetric    T_ii = 1 - e, T_ij = e / (C - 1) for all j != i

The server's test set stays clean in all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import Arrays
from isthmus.data.federation import Federation, Indices
from isthmus.errors import IsthmusError
from isthmus.ranges import Share
from isthmus.streams import stream

Labels = NDArray[np.int64]
Transition = NDArray[np.float64]  # [C, C], rows sum to 1


def pair(classes: int, rate: float) -> Transition:
    """Return the matrix in which a label becomes the next one.

    >>> pair(3, 0.25).tolist()
    [[0.75, 0.25, 0.0], [0.0, 0.75, 0.25], [0.25, 0.0, 0.75]]
    """
    stays = np.eye(_check_classes(classes))
    return (1 - rate) * stays + rate * np.roll(stays, 1, axis=1)


def symmetric(classes: int, rate: float) -> Transition:
    """Return the matrix in which a label becomes any other.

    >>> symmetric(3, 0.5).tolist()
    [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    """
    stays = np.eye(_check_classes(classes))
    return (1 - rate) * stays + rate / (classes - 1) * (1 - stays)


MATRICES = {"pair": pair, "symmetric": symmetric}
Kind = Literal["pair", "symmetric"]


def redraw(y: Labels, transition: Transition, rng: np.random.Generator) -> Labels:
    """Redraw each label from its row of the matrix, independently."""
    result = y.copy()
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        result[rows] = rng.choice(len(transition), size=len(rows), p=transition[label])
    return result


class Noise(Protocol):
    """Something that corrupts labels, at one of two times; at the other it changes nothing."""

    before_partition: ClassVar[bool] = False

    def corrupt_all(self, arrays: Arrays, seed: int) -> Arrays:
        """Corrupt the clients' labels before anything is divided."""
        return arrays

    def corrupt_clients(self, federation: Federation, seed: int) -> Federation:
        """Corrupt labels when every client has its splits."""
        return federation


@dataclass(frozen=True)
class Clean(Noise):
    """All labels as they are."""


@dataclass(frozen=True)
class TrainingNoise(Noise):
    """Noise in what clients train on: data are divided by clean labels, test labels are clean."""

    kind: ClassVar[Kind]

    rate: Share = 0.1
    rate_spread: Share = 0.0  # a client's rate is uniform in rate -+ rate_spread, within 0 to 1
    validation_too: bool = False  # what clients choose on is as noisy as what they train on

    def corrupt_clients(self, federation: Federation, seed: int) -> Federation:
        """Corrupt the labels that clients train on."""
        rates = _draw_rates(self.rate, self.rate_spread, len(federation), seed)
        return _corrupt_training(federation, self.kind, rates, self.validation_too, seed)


@dataclass(frozen=True)
class Pair(TrainingNoise):
    """Training labels become the next class; test labels are clean."""

    kind: ClassVar[Kind] = "pair"


@dataclass(frozen=True)
class Symmetric(TrainingNoise):
    """Training labels become any other class; test labels are clean."""

    kind: ClassVar[Kind] = "symmetric"
    rate: Share = 0.2


@dataclass(frozen=True)
class KddCodeNoise(Noise):
    """The SuPerFed release's noise: kinds swapped, clients' test labels noisy, divided by noise.

    `flag` is the release's option: "pair" runs its symmetric function, and the other way round.
    It corrupts the whole training set, which is then divided by what the labels have become.
    """

    before_partition: ClassVar[bool] = True

    flag: Kind = "pair"
    rate: Share = 0.1

    def corrupt_all(self, arrays: Arrays, seed: int) -> Arrays:
        """Corrupt all labels of the clients."""
        kind: Kind = "symmetric" if self.flag == "pair" else "pair"
        transition = MATRICES[kind](arrays.classes, self.rate)
        y = redraw(arrays.y, transition, stream(seed, "noise"))
        note = (
            f"{kind} noise changed {_describe_change(arrays.y, y)} labels, those of clients' "
            "test splits too; the partition was made of the noisy labels"
        )
        return arrays._replace(y=y, notes=(*arrays.notes, note))


def _draw_rates(rate: float, spread: float, clients: int, seed: int) -> list[float]:
    drawn = (stream(seed, "noise rate", i).uniform(-spread, spread) for i in range(clients))
    return [min(max(rate + apart, 0.0), 1.0) for apart in drawn]


def _corrupt_training(
    federation: Federation, kind: Kind, rates: Sequence[float], validation: bool, seed: int
) -> Federation:
    arrays, clean, noisy = federation.arrays, [], []
    y = arrays.y.copy()
    for i, (parts, rate) in enumerate(zip(federation.splits, rates, strict=True)):
        seen: list[Indices] = [parts.train, parts.validation] if validation else [parts.train]
        rows = np.concatenate(seen)
        transition = MATRICES[kind](arrays.classes, rate)
        y[rows] = redraw(arrays.y[rows], transition, stream(seed, "noise", i))
        clean.append(arrays.y[rows])
        noisy.append(y[rows])
    changed = _describe_change(np.concatenate(clean), np.concatenate(noisy))
    note = (
        f"{kind} noise changed {changed} training{' and validation' if validation else ''} labels"
    )
    if min(rates) < max(rates):
        note += f", at rates of {min(rates):.2f} to {max(rates):.2f} by client"
    note += f"; {'' if validation else 'validation and '}test labels are clean"
    return federation.replace(arrays=arrays._replace(y=y), notes=(*federation.notes, note))


def _describe_change(clean: Labels, noisy: Labels) -> str:
    changed = int((clean != noisy).sum())
    return f"{changed:,} of {len(clean):,} ({changed / len(clean):.1%})"


def _check_classes(classes: int) -> int:
    if classes < 2:
        raise IsthmusError(f"label noise needs two classes or more, not {classes}; set noise=none")
    return classes
