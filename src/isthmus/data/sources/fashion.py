"""Fashion-MNIST from its four original IDX files, gzipped or not.

H. Xiao, K. Rasul, R. Vollgraf (Zalando Research, 2017): 60,000 training and 10,000 test images of
articles of clothing, 1x28x28, ten classes (MIT licence). Its files are called as MNIST's are, so
that they are expected in the folder `fashion-mnist` of the data root and nowhere else:
`train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte`,
`t10k-labels-idx1-ubyte`, each with or without `.gz`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from isthmus.data.sources.arrays import Arrays
from isthmus.data.sources.idx import IdxFiles

FILES = IdxFiles("fashion-mnist", "Fashion-MNIST", classes=10, folders=("fashion-mnist",))
LABELS = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)


@dataclass(frozen=True)
class FashionMnist:
    """Fashion-MNIST, 1x28x28, ten classes; read from its IDX files below --data-root."""

    clients: ClassVar[int] = 100
    model: ClassVar[str] = "twonn"
    partition: ClassVar[str] = "pathological"

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the four files."""
        return FILES.load(root)._replace(labels=LABELS)
