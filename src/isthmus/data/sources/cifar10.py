"""CIFAR-10 from the pickles of its Python version.

50,000 training and 10,000 test photographs of aeroplanes, animals and cars, 3x32x32, ten classes
(who made it: see `cifar`). Expected in the data root: the folder `cifar-10-batches-py` with
`data_batch_1` to `data_batch_5`, `test_batch` and `batches.meta`, or the archive
`cifar-10-python.tar.gz`.

Normalisation is FLOCO's. The SuPerFed code resizes to 28x28 and does not normalise.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from isthmus.data.sources.arrays import Arrays
from isthmus.data.sources.cifar import CifarFiles, Size

FILES = CifarFiles(
    "cifar10",
    "CIFAR-10",
    "cifar-10-batches-py",
    "cifar-10-python.tar.gz",
    train=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test="test_batch",
    meta="batches.meta",
)
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # as in FLOCO's code


@dataclass(frozen=True)
class Cifar10:
    """CIFAR-10, 3x32x32, ten classes; read from its pickles, which are not run."""

    size: Size = 32  # 28: as the SuPerFed code resizes
    normalise: bool = True

    clients: ClassVar[int] = 100
    model: ClassVar[str] = "simplecnn"
    partition: ClassVar[str] = "pathological"

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the seven files, or the arrays in the cache."""
        examples = FILES.load(root, self.size, 10)
        return examples.arrays(10, *((MEAN, STD) if self.normalise else ()))
