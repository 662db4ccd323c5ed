"""One random stream per (seed, purpose, round, client): randomness is data.

Nothing in isthmus draws from a global generator. Every draw names what it is for, so that two
methods with one seed see the same cohorts and the same batches, a resumed run is the same run, and
no engine can change what is drawn by computing clients in another order.
"""

import hashlib
from math import ceil

import numpy as np


def key(seed: int, purpose: str, *place: int) -> int:
    """Hash a stream's name to 128 bits.

    >>> key(11, "batches", 3, 7) == key(11, "batches", 3, 7)
    True
    >>> key(11, "batches", 3, 7) == key(11, "batches", 7, 3)
    False
    """
    name = ":".join([str(seed), purpose, *(str(number) for number in place)])
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=16).digest(), "little")


def stream(seed: int, purpose: str, *place: int) -> np.random.Generator:
    """Open the generator of one stream."""
    return np.random.Generator(np.random.Philox(key=key(seed, purpose, *place)))


def seed_of(seed: int, purpose: str, *place: int) -> int:
    """Derive a 63-bit seed for libraries that want a number."""
    return key(seed, purpose, *place) & (2**63 - 1)


def sample(seed: int, total: int, wanted: float) -> list[int]:
    """Draw the clients that are evaluated throughout a run: a share of all, or a number above 1.

    At least two, since one does not show how far others are from it; in ascending order.

    >>> len(sample(7, 100, 0.05)), len(sample(7, 100, 12)), sample(7, 3, 0.9)
    (5, 12, [0, 1, 2])
    """
    share = wanted if wanted > 1 else ceil(round(wanted * total, 9))
    size = min(total, max(2, int(share)))
    return sorted(
        stream(seed, "evaluated clients").choice(total, size=size, replace=False).tolist()
    )


def cohort(seed: int, t: int, total: int, size: int) -> list[int]:
    """Draw the clients of round t, uniformly without replacement, in ascending order."""
    ids = stream(seed, "cohort", t).choice(total, size=size, replace=False)
    return sorted(int(i) for i in ids)
