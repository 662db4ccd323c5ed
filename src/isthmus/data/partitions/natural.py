"""The division that the data bring themselves: every owner is a client."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from isthmus.data.partitions.division import Division, Labels, Partition
from isthmus.errors import IsthmusError
from isthmus.ranges import PositiveInt


@dataclass(frozen=True)
class Natural(Partition):
    """Every owner (a writer, a role, a site) is a client; if fewer are asked for, some are drawn.

    Owners with fewer than `least` examples are left out, and always those whose examples do not
    fill a training, a validation and a test part. 0 clients stand for all owners. The clients are
    in the order of the owners.
    """

    by_owner: ClassVar[bool] = True

    least: PositiveInt = 1

    def cut(self, y: Labels, clients: int, rng: np.random.Generator) -> Division:
        """Return the indices of each client; y says whose an example is, -1 that it is left out."""
        rows_with_owner = np.flatnonzero(y >= 0)
        sizes = np.bincount(y[rows_with_owner])
        large = np.flatnonzero(sizes >= self.least)
        if not len(large):
            raise IsthmusError(
                f"natural found no owner with {self.least} examples or more among "
                f"{(sizes > 0).sum()}; lower least"
            )
        notes = []
        small = int((sizes > 0).sum()) - len(large)
        if small:
            notes.append(
                f"{small:,} of {small + len(large):,} owners with fewer than {self.least} examples "
                "were left out"
            )
        drawn = large
        if 0 < clients < len(large):
            drawn = np.sort(rng.choice(large, clients, replace=False))
            notes.append(f"{clients:,} of {len(large):,} owners were drawn")
        elif clients > len(large):
            notes.append(f"there are {len(large):,} clients, not {clients:,}: one for each owner")
        by_owner = rows_with_owner[np.argsort(y[rows_with_owner], kind="stable")]
        ends = np.cumsum(sizes)
        shares = [by_owner[ends[owner] - sizes[owner] : ends[owner]] for owner in drawn]
        left = len(y) - sum(map(len, shares))
        if left:
            notes.append(f"{left:,} of {len(y):,} examples are not used")
        return Division(shares, tuple(notes))
