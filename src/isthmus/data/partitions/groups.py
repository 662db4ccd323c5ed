"""Partitions in which clients come in groups, and groups prefer or own some of the classes."""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from isthmus.data.partitions.division import (
    Counts,
    Division,
    Indices,
    Labels,
    Partition,
    Proportions,
    check_enough,
    deal,
    equal_sizes,
    fill_slots,
)
from isthmus.errors import IsthmusError
from isthmus.ranges import NonNegativeInt, Share


@dataclass(frozen=True)
class FiveFold(Partition):
    """Clients in groups; each has most of its examples from its group's own classes (FLOCO).

    Client k is in group k mod folds; with ten classes and five folds, group g owns the classes 2g
    and 2g + 1. A client's `primary_share` comes from these in equal numbers; the rest comes in
    equal numbers from the `others`, as in the paper, or from `all`, as in the releases, where own
    classes then make up more than the primary share. Sizes are equal and all examples are used.
    """

    primary_share: Share = 0.8
    rest: Literal["others", "all"] = "others"
    folds: Annotated[int, Field(ge=2)] = 5

    def cut(self, y: Labels, clients: int, rng: np.random.Generator) -> Division:
        """Return the indices into y of each client."""
        check_enough(len(y), clients, "clients")
        _, y = np.unique(y, return_inverse=True)
        wishes = self._wishes(int(y.max()) + 1)
        own = wishes.shape[1] // self.folds
        sizes = equal_sizes(len(y), clients)
        owner = np.repeat(np.arange(clients), sizes)
        number = np.arange(len(y)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        is_rest = number >= np.rint(self.primary_share * sizes)[owner]
        wish = owner % self.folds + self.folds * is_rest
        classes = np.empty(len(y), np.int64)
        for row, weights in enumerate(wishes):
            # From a group's own classes onwards: what does not divide evenly falls on all alike.
            onwards = np.roll(np.arange(len(weights)), -(row % self.folds) * own)
            wanting, wanted = np.flatnonzero(wish == row), onwards[weights[onwards] > 0]
            classes[wanting] = wanted[np.arange(len(wanting)) % len(wanted)]
        # At random, but primary classes are given out before the rest is.
        turn = rng.permutation(len(y))
        turn = turn[np.argsort(is_rest[turn], kind="stable")]
        filled = fill_slots(np.bincount(y), classes[turn], wishes, wish[turn], rng)
        owner = owner[turn]
        shares = deal(y, owner, filled.classes, clients, rng)
        if not filled.late:
            return Division(shares)
        mine = wishes[owner % self.folds, filled.classes] > 0
        share = np.bincount(owner, weights=mine, minlength=clients) / sizes
        note = (
            f"{filled.late:,} of {len(y):,} examples are of another class than planned, of which "
            f"there were too few; clients have {share.min():.1%} to {share.max():.1%} of their "
            "examples from their primary classes"
        )
        return Division(shares, (note,))

    def _wishes(self, classes: int) -> Proportions:
        """Return the classes that each group wants: for the primary share, then for the rest."""
        if classes % self.folds:
            raise IsthmusError(
                f"five-fold cannot divide {classes} classes into folds={self.folds}; change folds"
            )
        primary = np.repeat(np.eye(self.folds), classes // self.folds, axis=1)  # [folds, C]
        rest = 1 - primary if self.rest == "others" else np.ones_like(primary)
        return np.concatenate([primary, rest])


class SemanticKind(NamedTuple):
    """The settings of a semantic partition where none are given."""

    blocks: tuple[int, ...]  # of classes that are grouped apart; none: all classes are one block
    groups: int
    smallest: int
    largest: int


KINDS = {
    "even": SemanticKind((), 5, 100, 799),
    "emnist": SemanticKind((10, 26, 26), 5, 100, 799),  # digits, capital letters, small letters
    "tinyimagenet": SemanticKind((200,), 10, 100, 399),
}


@dataclass(frozen=True)
class Semantic(Partition):
    """Groups of classes drawn at random; each group is cut into clients of random sizes.

    As in the first version of the SuPerFed paper. From a group's shuffled examples clients are cut,
    with sizes uniform in smallest..largest, until `smallest` or fewer are left, or fewer than the
    size that was drawn; these are left over. The number of clients follows; the experiment's is
    not used. `emnist` groups digits, capital and small letters apart, and joins the c-th groups of
    the three; `even` groups any number of classes. 0 stands for the kind's own number.
    """

    kind: Literal["even", "emnist", "tinyimagenet"] = "even"
    groups: NonNegativeInt = 0
    smallest: NonNegativeInt = 0
    largest: NonNegativeInt = 0

    def cut(self, y: Labels, clients: int, rng: np.random.Generator) -> Division:
        """Return the indices into y of each client."""
        known, y = np.unique(y, return_inverse=True)
        kind = self._choose_sizes(len(known))
        group_of = _draw_groups(kind, rng)
        shares: list[Indices] = []
        for group in range(kind.groups):
            rows = rng.permutation(np.flatnonzero(group_of[y] == group))
            sizes = _draw_sizes(len(rows), kind, rng)
            shares += np.split(rows, np.cumsum(sizes))[:-1]
        if not shares:
            raise IsthmusError(
                f"semantic found no client in {len(y)} examples in {kind.groups} groups, which "
                f"need more than {kind.largest} each; lower groups, smallest or largest"
            )
        notes = []
        if len(shares) != clients:
            notes.append(
                f"there are {len(shares):,} clients, not {clients:,}: how many follows from the "
                f"{kind.groups} groups and the sizes, {kind.smallest} to {kind.largest} examples"
            )
        left = len(y) - sum(len(share) for share in shares)
        if left:
            notes.append(f"{left:,} of {len(y):,} examples were left over and are not used")
        return Division(shares, tuple(notes))

    def _choose_sizes(self, classes: int) -> SemanticKind:
        own = KINDS[self.kind]
        blocks = own.blocks or (classes,)
        groups = self.groups or own.groups
        smallest, largest = self.smallest or own.smallest, self.largest or own.largest
        if classes != sum(blocks):
            raise IsthmusError(
                f"semantic with kind={self.kind} needs {sum(blocks)} classes, not {classes}; set "
                "kind=even"
            )
        if groups > min(blocks):
            raise IsthmusError(
                f"semantic has groups={groups} for {min(blocks)} classes; lower groups"
            )
        if smallest > largest:
            raise IsthmusError(
                f"semantic has smallest={smallest} above largest={largest}; raise largest"
            )
        return SemanticKind(blocks, groups, smallest, largest)


def _draw_groups(kind: SemanticKind, rng: np.random.Generator) -> Labels:
    """Draw for every class the group that it is in: of each block, as many in each as can be."""
    groups = []
    for classes in kind.blocks:
        sizes = np.diff(np.arange(kind.groups + 1) * classes // kind.groups)  # 26: 5, 5, 5, 5, 6
        groups.append(rng.permutation(np.repeat(np.arange(kind.groups), sizes)))
    return np.concatenate(groups)


def _draw_sizes(examples: int, kind: SemanticKind, rng: np.random.Generator) -> Counts:
    drawn = rng.integers(kind.smallest, kind.largest + 1, size=examples // kind.smallest + 1)
    left = examples - (np.cumsum(drawn) - drawn)  # before each draw
    fits = (left > kind.smallest) & (drawn <= left)
    return drawn[np.logical_and.accumulate(fits)]
