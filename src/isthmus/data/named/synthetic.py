"""A synthetic classification problem of any size: one Gaussian cloud per class."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from isthmus.data.arrays import Arrays
from isthmus.ranges import Positive, PositiveInt
from isthmus.streams import stream
from isthmus.system.machine import refuse_lack_of_memory

VALUE = 32  # bytes that are taken for a value while it is drawn


@dataclass(frozen=True)
class Synthetic:
    """Gaussian clouds, one per class, drawn from the experiment's seed."""

    samples: PositiveInt = 2000
    features: PositiveInt = 16
    classes: PositiveInt = 10
    spread: Positive = 1.0  # deviation of a cloud; the centres are standard normal

    clients: ClassVar[int] = 20
    model: ClassVar[str] = "mlp"
    partition: ClassVar[str] = "pathological"

    def load(self, root: Path, seed: int) -> Arrays:
        """Draw the clients' samples, and a fifth as many for the server's test set."""
        tested = max(1, self.samples // 5)
        values = (self.samples + tested + self.classes) * self.features
        refuse_lack_of_memory(
            f"samples={self.samples}, features={self.features}, classes={self.classes} take",
            VALUE * values,
            "lower them",
        )
        rng = stream(seed, "synthetic")
        y = rng.integers(self.classes, size=self.samples + tested)
        centres = rng.standard_normal((self.classes, self.features))
        x = centres[y] + self.spread * rng.standard_normal((len(y), self.features))
        x = x.astype(np.float32)
        return Arrays(x[tested:], y[tested:], x[:tested], y[:tested], self.classes)
