"""One client in the place of all: what training on everybody's data in one place is run on."""

from collections.abc import Mapping

import numpy as np
import torch

from isthmus.data.federation import Federation, Indices, Split, Splits
from isthmus.streams import stream


class PooledFederation(Federation):
    """A single client, whose training examples are those that were drawn from all clients'."""

    def __init__(self, source: Federation, drawn: Mapping[int, Indices]):
        nothing = np.zeros(0, np.int64)
        rows = np.concatenate([*drawn.values()])
        Federation.__init__(self, source.arrays, [Splits(rows, nothing, nothing)])
        self._source, self._drawn = source, drawn

    def split(self, i: int, name: str) -> Split:
        """Gives its training examples, each scaled as at the client it comes from."""
        if name != "train":
            return Federation.split(self, i, name)
        taken = [self._source.take(owner, rows) for owner, rows in self._drawn.items()]
        return Split(*(torch.cat(tensors) for tensors in zip(*taken, strict=True)))


def pool(federation: Federation, size: int, seed: int, t: int) -> PooledFederation:
    """Draws so many of all clients' training examples for round t, without replacement."""
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
