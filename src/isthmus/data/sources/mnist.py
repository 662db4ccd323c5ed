"""MNIST from its four original IDX files, gzipped or not.

Y. LeCun, C. Cortes, C. Burges: 60,000 training and 10,000 test images of handwritten digits,
1x28x28, ten classes (CC BY-SA 3.0). Expected in the folder `mnist` of the data root, or in the data
root itself:
`train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte`,
`t10k-labels-idx1-ubyte`, each with or without `.gz`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from isthmus.data.sources.arrays import Arrays
from isthmus.data.sources.idx import IdxFiles

FILES = IdxFiles("mnist", "MNIST", classes=10, folders=("mnist", "."))


@dataclass(frozen=True)
class Mnist:
    """MNIST, 1x28x28, ten classes; read from its IDX files below --data-root."""

    clients: ClassVar[int] = 100
    model: ClassVar[str] = "twonn"
    partition: ClassVar[str] = "pathological"

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the four files."""
        return FILES.load(root)
