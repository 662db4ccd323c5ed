"""What every data set becomes: arrays, as compact as they came."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

TRAIN, VALIDATION, TEST = 0, 1, 2  # in `Arrays.split`
SUMS, CLIENT = "sums", "client"  # in `Arrays.scaled_by`
REFUSE, MEAN, MEDIAN, INDICATOR = "refuse", "mean", "median", "indicator"  # in `Column.missing`
BOOLEAN, HOLE, OTHER = "boolean", "missing", "other"  # in `Column.part`; so are parts of dates


class Column(NamedTuple):
    """What one number of an input was in its table, and how it was scaled."""

    name: str
    category: str | None  # 1 where the cell says this, else 0; None: the cell is the number
    mean: float = 0.0  # was subtracted
    std: float = 1.0  # was divided by
    part: str = ""  # what is read from the cell, if it is no plain number or word
    format: str = ""  # of dates
    missing: str = REFUSE  # where a cell says nothing: how `fill` is found; words need none
    fill: float | None = None  # what a number is that is missing, before it is scaled
    scaled: bool = True  # whether a number is; words never are
    missing_values: Sequence[str] = ()  # that stand for none, beside those that always do

    @property
    def fills(self) -> bool:
        """Whether a number that is missing is filled in."""
        return self.category is None and self.missing != REFUSE


class Arrays(NamedTuple):
    """A data set: examples for the clients, and where there are any, the server's own test set.

    Integer inputs are divided by `scale` when they are used, unless they are `tokens`; then, and
    floating-point ones always, `mean` is subtracted and `std` divided by, one number per channel
    (the first axis of an example), where they are given.
    """

    x: NDArray[np.generic]
    y: NDArray[np.int64]
    test_x: NDArray[np.generic]  # no rows: the server has no test set
    test_y: NDArray[np.int64]
    classes: int
    scale: float = 1.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    tokens: bool = False  # the inputs are symbols: a network looks them up
    owner: NDArray[np.int64] | None = None  # whose each example is, where the data say so: 0, 1, ..
    names: tuple[str, ...] = ()  # of the owners
    split: NDArray[np.int8] | None = None  # TRAIN, VALIDATION or TEST, where the data say so
    labels: tuple[str, ...] = ()  # names of the classes, where they have any
    columns: tuple[Column, ...] = ()  # where the inputs were rows of a table
    scaled_by: str = ""  # sums, client: by what clients train on, once the data are divided
    weight: NDArray[np.float64] | None = None  # how much each counts in training, where they say so
    notes: tuple[str, ...] = ()  # what was left out or changed: a sentence each

    def count_owners(self) -> int:
        """Count the owners; 0 where the data do not say whose an example is."""
        return 0 if self.owner is None else len(np.unique(self.owner))


class Source(Protocol):
    """A data set by name: a frozen setting, and what an experiment on it takes by default."""

    clients: ClassVar[int]  # 0: as many as the data have owners
    model: ClassVar[str]
    partition: ClassVar[Any]  # a name, or a table of a name and options

    def load(self, root: Path, seed: int) -> Arrays:
        """Read it from its files below `root`."""
