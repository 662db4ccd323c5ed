"""The 1,797 real 8x8 images of handwritten digits that come with isthmus.

They are the test set of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak
(UCI Machine Learning Repository, 1998, CC BY 4.0): images of 13 writers, each pixel the number of
dark points, 0 to 16, in a 4x4 block. Every sixth image (300 in all) is the server's test set; the
clients share the other 1,497.
"""

from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import ClassVar

import numpy as np

from isthmus.data.arrays import Arrays


@dataclass(frozen=True)
class Digits:
    """Handwritten digits, 1x8x8, ten classes; bundled."""

    clients: ClassVar[int] = 20
    model: ClassVar[str] = "mlp"
    partition: ClassVar[str] = "pathological"

    def load(self, root: Path, seed: int) -> Arrays:
        """Read the bundled file."""
        with (
            as_file(files("isthmus.data.named") / "digits.npz") as path,
            np.load(path, allow_pickle=False) as file,
        ):
            x, y = file["x"], file["y"].astype(np.int64)
        held = np.arange(len(y)) % 6 == 0
        return Arrays(x[~held], y[~held], x[held], y[held], classes=10, scale=16.0)
