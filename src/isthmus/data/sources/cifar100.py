"""CIFAR-100 from the pickles of its Python version.

50,000 training and 10,000 test photographs, 3x32x32, of 100 classes, which are five each of 20
coarse ones (who made it: see `cifar`). Expected in the data root: the folder `cifar-100-python`
with `train`, `test` and `meta`, or the archive `cifar-100-python.tar.gz`.

Normalisation is by the mean and the deviation of each channel over the training images. The
SuPerFed code resizes to 28x28 and does not normalise.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from isthmus.data.sources.arrays import Arrays
from isthmus.data.sources.cifar import CifarFiles, Size

FILES = CifarFiles(
    "cifar100",
    "CIFAR-100",
    "cifar-100-python",
    "cifar-100-python.tar.gz",
    train=("train",),
    test="test",
    meta="meta",
)
CLASSES = {"fine": 100, "coarse": 20}
MEAN, STD = (0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762)


@dataclass(frozen=True)
class Cifar100:
    """CIFAR-100, 3x32x32, 100 or 20 classes; read from its pickles, which are not run."""

    labels: Literal["fine", "coarse"] = "fine"
    size: Size = 32  # 28: as the SuPerFed code resizes
    normalise: bool = True

    clients: ClassVar[int] = 100
    model: ClassVar[str] = "resnet9"
    partition: ClassVar[str] = "dirichlet-classwise"

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the three files, or the arrays in the cache."""
        classes = CLASSES[self.labels]
        examples = FILES.load(root, self.size, classes, self.labels)
        return examples.arrays(classes, *((MEAN, STD) if self.normalise else ()))
