"""EMNIST by class, from its original IDX files or from the archive that they come in.

G. Cohen, S. Afshar, J. Tapson, A. van Schaik (2017), made from NIST Special Database 19 (a work of
the United States government, in the public domain): 697,932 training and 116,323 test images of
handwritten characters, 1x28x28, 62 classes: the digits, the capital letters, the small letters.
Expected in the folder `emnist` or `gzip` of the data root, or in the data root itself:
`emnist-byclass-train-images-idx3-ubyte`, `emnist-byclass-train-labels-idx1-ubyte` and the same two
for `test`, each with or without `.gz`; or the official archive `gzip.zip`, which is read as it is.
The files hold every image with rows and columns exchanged; here they are upright.
"""

import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from isthmus.data.sources.arrays import Arrays
from isthmus.data.sources.idx import IdxFiles

FILES = IdxFiles(
    "emnist",
    "EMNIST",
    classes=62,
    folders=("emnist", "emnist/gzip", "gzip", "."),
    train="emnist-byclass-train",
    test="emnist-byclass-test",
    archive="gzip.zip",
    inside="gzip/",
    turned=True,
)
LABELS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)


@dataclass(frozen=True)
class Emnist:
    """EMNIST by class, 1x28x28, 62 characters; read from its IDX files below --data-root."""

    clients: ClassVar[int] = 1543
    model: ClassVar[str] = "cnn5"
    partition: ClassVar[Mapping[str, str]] = {"name": "semantic", "kind": "emnist"}

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the four files; the images are upright."""
        return FILES.load(root)._replace(labels=LABELS)
