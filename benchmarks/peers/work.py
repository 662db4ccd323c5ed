"""A work as a folder of files, and how a framework takes turns with others."""

import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.networks import NETWORKS, Settings, load


class PeerWork(NamedTuple):
    """The clients' training examples, the network, and how it is trained."""

    network: str
    cohorts: list[list[int]]  # the clients of each round
    processes: int
    sgd: Settings
    x: Tensor
    y: Tensor
    ends: list[int]
    start: Tensor  # [P]

    @property
    def rounds(self) -> int:
        """The rounds to play."""
        return len(self.cohorts)

    @property
    def cohort(self) -> int:
        """The clients of a round."""
        return len(self.cohorts[0])

    def data(self, i: int) -> tuple[Tensor, Tensor]:
        """Return client i's training examples."""
        rows = slice(self.ends[i - 1] if i else 0, self.ends[i])
        return self.x[rows], self.y[rows]

    def module(self) -> nn.Module:
        """Build the network at its start."""
        module = NETWORKS[self.network]()
        load(module, self.start)
        return module


@cache
def read(folder: str) -> PeerWork:
    """Read a work, once per process; processes share the pages of its arrays."""
    arrays = {
        name: torch.from_numpy(np.load(Path(folder, f"{name}.npy"), mmap_mode="c"))
        for name in ("x", "y", "ends", "start")
    }
    given = json.loads(Path(folder, "work.json").read_text())
    changed = {"sgd": Settings(*given["sgd"]), "ends": arrays["ends"].tolist()}
    return PeerWork(**given | arrays | changed)


class Turns:
    """Says on the standard output that it is ready, and waits for a line of the standard input.

    What others write to the standard output goes to the standard error instead.
    """

    def __init__(self, rounds: int):
        self._left = rounds
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def wait(self) -> None:
        """Wait for the next turn; after the last round, for nothing."""
        self._answers.write("ready\n")
        self._answers.flush()
        if self._left and not sys.stdin.readline():
            raise EOFError("the input ended before the last round")
        self._left -= 1
