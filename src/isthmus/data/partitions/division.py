"""What every partition returns, and the steps that several of them share.

Every partition is disjoint, gives every client at least one example, ends whatever it is given, and
is a pure function of the labels, the number of clients and the random stream.

Some decide first how many examples of which class a client gets. They think in slots: a slot is
room for one example at one client, and has a class. `fill_slots` mends the classes of slots that
find nothing left of theirs; `deal` puts examples into slots. Sizes: N clients, C classes, S slots.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from isthmus.errors import IsthmusError

Labels = NDArray[np.int64]
Indices = NDArray[np.int64]
Counts = NDArray[np.int64]  # [N, C], or one number per class or client
Proportions = NDArray[np.float64]

DRAWS = 20  # of sizes that leave a client short, before examples are moved instead
BLOCK = 1 << 16  # slots whose classes are drawn at a time: [BLOCK, C] numbers in memory


class Division(NamedTuple):
    """The clients' indices, and what the rule had to relax: a sentence each."""

    shares: list[Indices]
    notes: tuple[str, ...] = ()


class Partition(Protocol):
    """A rule that divides examples among clients."""

    by_owner: ClassVar[bool] = False  # `cut` gets whose each example is in place of its label

    def cut(self, y: Labels, clients: int, rng: np.random.Generator) -> Division:
        """Return the indices into y of each client."""


def check_enough(examples: int, wanted: int, what: str) -> None:
    """Refuse to divide too few examples."""
    if wanted > examples:
        raise IsthmusError(
            f"{wanted} {what} need an example each, and there are only {examples}; lower clients"
        )


def check_least(examples: int, clients: int, least: int) -> None:
    """Refuse to divide examples that do not give every client its least number."""
    if clients * least > examples:
        raise IsthmusError(
            f"{clients} clients with least={least} need {clients * least} examples, and there are "
            f"only {examples}; lower clients or least"
        )


def equal_sizes(examples: int, clients: int) -> Counts:
    """Return sizes that differ by one at most.

    >>> equal_sizes(11, 3).tolist()
    [4, 4, 3]
    """
    return examples // clients + (np.arange(clients) < examples % clients)


def dirichlet(
    concentration: float | Proportions, length: int, rows: int, rng: np.random.Generator
) -> Proportions:
    """Draw rows of proportions [rows, length]; each row sums to 1."""
    # Beyond 1e12 proportions are equal to one part in a million, and sums of gammas may overflow.
    at_most = np.minimum(np.broadcast_to(concentration, length), 1e12)
    return rng.dirichlet(at_most, rows)


def proportional(proportions: Proportions, total: int) -> Counts:
    """Cut `total` things by the cumulated proportions.

    >>> proportional(np.array([0.5, 0.25, 0.25]), 10).tolist()
    [5, 2, 3]
    """
    ends = np.floor(np.cumsum(proportions) * total).astype(np.int64)
    ends[-1] = total
    return np.diff(ends, prepend=0)


def slots(counts: Counts) -> tuple[Indices, Labels]:
    """Return the owner and the class of every slot of a table of counts [N, C]."""
    clients, classes = counts.shape
    owner = np.repeat(np.arange(clients), counts.sum(axis=1))
    return owner, np.repeat(np.tile(np.arange(classes), clients), counts.ravel())


class Filled(NamedTuple):
    """The classes of all slots, and what became of those that came too late."""

    classes: Labels  # [S]
    late: int  # slots that had to take another class than theirs
    astray: int  # of them, those that had to take one against their wishes


def fill_slots(
    room: Counts,
    classes: Labels | None,
    wishes: Proportions,
    wish: Indices,
    rng: np.random.Generator,
) -> Filled:
    """Fill slots in their order; one whose class has run out draws another by its wishes.

    Slot i wishes for classes in the proportions wishes[wish[i]]. It begins with classes[i], or with
    a draw where there are none; of class c there are room[c] examples. Where all that a slot wishes
    for has run out, it takes any class that is left, all of them alike.

    Slots are not visited one by one. The first slot of all to find nothing left closes a class for
    itself and for all after it; only those of them that have that class draw again, from what is
    open: that is what they would have done one by one. Every turn closes a class, so that there
    are C turns at most.
    """
    is_open = room > 0
    classes = _draw(wishes, wish, is_open, rng)[0] if classes is None else classes.copy()
    late, astray = np.zeros(len(wish), bool), np.zeros(len(wish), bool)
    narrow = np.uint8 if len(room) <= 256 else np.int64  # numpy sorts small numbers by counting
    while True:
        by_class = np.argsort(classes.astype(narrow), kind="stable")
        taken = np.bincount(classes, minlength=len(room))
        ends = np.cumsum(taken)
        over = np.flatnonzero(taken > room)
        if not len(over):
            return Filled(classes, int(late.sum()), int(astray.sum()))
        first = by_class[ends[over] - taken[over] + room[over]]
        full = over[np.argmin(first)]
        is_open[full] = False
        again = by_class[ends[full] - taken[full] + room[full] : ends[full]]
        classes[again], astray[again] = _draw(wishes, wish[again], is_open, rng)
        late[again] = True


def _draw(
    wishes: Proportions, wish: Indices, is_open: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[Labels, NDArray[np.bool_]]:
    """Draw an open class per slot; return also which slots had no wish that is open."""
    occurring, wish = np.unique(wish, return_inverse=True)
    allowed = wishes[occurring] * is_open
    top = allowed.max(axis=1, keepdims=True)
    none = top[:, 0] <= 0
    # With the largest weight at 1, no draw is rounded down to 0 or beyond the sum.
    weights = np.where(none[:, None], is_open, allowed / np.where(top > 0, top, 1))
    sums = np.cumsum(weights, axis=1)  # [rows, C]
    classes = np.empty(len(wish), np.int64)
    for start in range(0, len(wish), BLOCK):
        rows = wish[start : start + BLOCK]
        u = (1 - rng.random(len(rows))) * sums[rows, -1]  # above 0, at most the sum
        classes[start : start + BLOCK] = np.argmax(sums[rows] >= u[:, None], axis=1)
    return classes, none[wish]


def deal(
    y: Labels, owner: Indices, classes: Labels, clients: int, rng: np.random.Generator
) -> list[Indices]:
    """Put into each slot an example of its class, drawn without replacement; y is 0..C-1."""
    shuffled = rng.permutation(len(y))
    by_label = shuffled[np.argsort(y[shuffled], kind="stable")]
    room = np.bincount(y)
    taken = np.bincount(classes, minlength=len(room))
    skipped = (np.cumsum(room) - room) - (np.cumsum(taken) - taken)  # examples, before each class
    example = np.empty(len(classes), np.int64)
    by_class = np.argsort(classes, kind="stable")
    example[by_class] = by_label[np.arange(len(classes)) + np.repeat(skipped, taken)]
    sizes = np.bincount(owner, minlength=clients)
    return np.split(example[np.argsort(owner, kind="stable")], np.cumsum(sizes)[:-1])


def draw_with_least(draw: Callable[[], Counts], least: int) -> tuple[Counts, tuple[str, ...]]:
    """Draw counts [N, C] until no client has fewer than `least` examples.

    After DRAWS draws it takes the best of them and moves examples from the largest clients.
    """

    def count_missing(counts: Counts) -> Counts:
        short: Counts = np.maximum(least - counts.sum(axis=1), 0)
        return short

    best, times = draw(), 1
    while count_missing(best).any() and times < DRAWS:
        best, times = min(best, draw(), key=lambda counts: count_missing(counts).sum()), times + 1
    short = count_missing(best)
    if short.any():
        note = (
            f"in each of {times} draws some clients had fewer than {least} examples; in the best "
            f"of them {short.sum():,} examples were moved from the largest clients to "
            f"{(short > 0).sum():,} of {len(best):,}"
        )
        return level_out(best, least), (note,)
    again = f"sizes were drawn {times} times until every client had {least} examples"
    return best, (again,) if times > 1 else ()


def level_out(counts: Counts, least: int) -> Counts:
    """Move examples from the largest clients to those with fewer than `least`.

    The largest give until they are all of one size, each from its most frequent classes first; who
    is short takes what comes, so that few classes come together.

    >>> level_out(np.array([[9, 1], [0, 4], [0, 0]]), least=3).tolist()
    [[6, 1], [0, 4], [3, 0]]
    """
    sizes = counts.sum(axis=1)
    missing = np.maximum(least - sizes, 0)
    low, high = least, int(sizes.max())  # the highest level from which enough comes down
    while low < high:
        level = (low + high + 1) // 2
        if np.maximum(sizes - level, 0).sum() >= missing.sum():
            low = level
        else:
            high = level - 1
    gives = np.maximum(sizes - low, 0)
    givers = np.flatnonzero(gives)
    gives[givers[: gives.sum() - missing.sum()]] -= 1
    ranks = np.argsort(-counts, axis=1, kind="stable")
    ranked = np.take_along_axis(counts, ranks, axis=1)
    before = np.cumsum(ranked, axis=1) - ranked
    given = np.zeros_like(counts)
    np.put_along_axis(given, ranks, np.clip(gives[:, None] - before, 0, ranked), axis=1)
    _, moved = slots(given)
    received = np.zeros_like(counts)
    np.add.at(received, (np.repeat(np.arange(len(counts)), missing), moved), 1)
    return counts - given + received
