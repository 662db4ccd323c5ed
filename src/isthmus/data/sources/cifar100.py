"""CIFAR-100 from the pickles of its Python version.

50,000 training and 10,000 test photographs, 3x32x32, of 100 classes, which are five each of 20
coarse ones (who made it: see `cifar`). Expected in the data root: the folder `cifar-100-python`
with `train`, `test` and `meta`, or the archive `cifar-100-python.tar.gz`.

Normalisation is by the mean and the deviation of each channel over the training images. The
SuPerFed code resizes to 28x28 and does not normalise.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from isthmus.data.sources import cifar
from isthmus.data.sources.arrays import Arrays
from isthmus.data.sources.cache import FileExamples

FILES = cifar.CifarFiles(
    "cifar100", "cifar-100-python", "cifar-100-python.tar.gz", ("train", "test", "meta")
)
CLASSES = {"fine": 100, "coarse": 20}
MEAN, STD = (0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762)


@dataclass(frozen=True)
class Cifar100:
    """CIFAR-100, 3x32x32, 100 or 20 classes; read from its pickles, which are not run."""

    labels: Literal["fine", "coarse"] = "fine"
    size: cifar.Size = 32  # 28: as the SuPerFed code resizes
    normalise: bool = True

    clients: ClassVar[int] = 100
    model: ClassVar[str] = "resnet9"
    partition: ClassVar[str] = "dirichlet-classwise"

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the three files, or the arrays in the cache."""
        variant = f"{self.labels}-{self.size}"
        examples = FILES.read_cached(root, variant, partial(self._read, root))
        return examples.arrays(CLASSES[self.labels], *((MEAN, STD) if self.normalise else ()))

    def _read(self, root: Path) -> FileExamples:
        tables, classes, key = FILES.tables(root), CLASSES[self.labels], f"{self.labels}_labels"
        train, test = [tables["train"]], [tables["test"]]
        names = cifar.read_names(tables["meta"], f"{self.labels}_label_names", "CIFAR-100", classes)
        return FileExamples(
            cifar.join_images(train, "CIFAR-100", self.size),
            cifar.join_labels(train, key, "CIFAR-100", classes),
            cifar.join_images(test, "CIFAR-100", self.size),
            cifar.join_labels(test, key, "CIFAR-100", classes),
            np.array(names),
        )
