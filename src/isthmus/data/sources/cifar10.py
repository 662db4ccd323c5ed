"""CIFAR-10 from the pickles of its Python version.

50,000 training and 10,000 test photographs of aeroplanes, animals and cars, 3x32x32, ten classes
(who made it: see `cifar`). Expected in the data root: the folder `cifar-10-batches-py` with
`data_batch_1` to `data_batch_5`, `test_batch` and `batches.meta`, or the archive
`cifar-10-python.tar.gz`.

Normalisation is FLOCO's. The SuPerFed code resizes to 28x28 and does not normalise.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from isthmus.data.sources import cifar
from isthmus.data.sources.arrays import Arrays
from isthmus.data.sources.cache import FileExamples

TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
FILES = cifar.CifarFiles(
    "cifar10",
    "cifar-10-batches-py",
    "cifar-10-python.tar.gz",
    (*TRAIN, "test_batch", "batches.meta"),
)
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # as in FLOCO's code


@dataclass(frozen=True)
class Cifar10:
    """CIFAR-10, 3x32x32, ten classes; read from its pickles, which are not run."""

    size: cifar.Size = 32  # 28: as the SuPerFed code resizes
    normalise: bool = True

    clients: ClassVar[int] = 100
    model: ClassVar[str] = "simplecnn"
    partition: ClassVar[str] = "pathological"

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the seven files, or the arrays in the cache."""
        examples = FILES.read_cached(root, f"{self.size}", partial(self._read, root))
        return examples.arrays(10, *((MEAN, STD) if self.normalise else ()))

    def _read(self, root: Path) -> FileExamples:
        tables = FILES.tables(root)
        train, test = [tables[file] for file in TRAIN], [tables["test_batch"]]
        return FileExamples(
            cifar.join_images(train, "CIFAR-10", self.size),
            cifar.join_labels(train, "labels", "CIFAR-10", 10),
            cifar.join_images(test, "CIFAR-10", self.size),
            cifar.join_labels(test, "labels", "CIFAR-10", 10),
            np.array(cifar.read_names(tables["batches.meta"], "label_names", "CIFAR-10", 10)),
        )
