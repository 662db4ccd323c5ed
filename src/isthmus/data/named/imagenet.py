"""ImageNet, or any photographs in folders as ImageNet has them.

J. Deng, W. Dong, R. Socher, L.-J. Li, K. Li, F.-F. Li (2009); the 1,000 classes of the 2012
challenge have 1,281,167 training and 50,000 validation images of many sizes. It may be used for
research and teaching that is not commercial, and is to be had from its makers only. Expected in the
folder `imagenet` of the data root, or the one that `path` names: `train/<class>/*` and
`val/<class>/*`, files that end in .jpeg, .jpg or .png. The validation images are the server's test
set. Images are made to cover a square of `size` and cut around their centre.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from isthmus.data.arrays import Arrays
from isthmus.data.file_errors import reading
from isthmus.data.named.photographs import MEAN, STD, decode, list_labels, list_photographs
from isthmus.errors import IsthmusError, nearest


@dataclass(frozen=True)
class ImageNet:
    """Photographs in train/<class> and val/<class>, as ImageNet has them; 3xSIZExSIZE."""

    path: str = "imagenet"  # below the data root
    classes: str = ""  # names with commas, or a file of names; empty: all
    size: Annotated[int, Field(ge=8, le=1024)] = 64
    normalise: bool = True  # by ImageNet's mean and deviation

    clients: ClassVar[int] = 100
    model: ClassVar[str] = "resnet9"
    partition: ClassVar[str] = "dirichlet-classwise"

    def load(self, root: Path, seed: int) -> Arrays:
        """Read the folders of the chosen classes."""
        tree = self._tree(root)
        classes = self._choose_classes(root, _folders(tree / "train"))
        looking = f"looking through {tree.name}"
        train = list_photographs([tree / "train" / name for name in classes], looking)
        test = list_photographs([tree / "val" / name for name in classes], looking)
        # Other classes are other arrays; those of the whole tree stay.
        which = hashlib.sha256("\n".join(classes).encode()).hexdigest()[:8]
        suffix = f"-{which}" if self.classes else ""
        return Arrays(
            decode(train, tree, f"train{suffix}", self.size),
            list_labels(train),
            decode(test, tree, f"val{suffix}", self.size),
            list_labels(test),
            classes=len(classes),
            scale=255.0,
            mean=MEAN if self.normalise else (),
            std=STD if self.normalise else (),
            labels=tuple(classes),
        )

    def _tree(self, root: Path) -> Path:
        tree = root / self.path
        for part in ("train", "val"):
            if not (tree / part).is_dir():
                raise IsthmusError(
                    f"no folder {tree / part}; put images there in train/<class> and val/<class>, "
                    "or set path, or name another --data-root"
                )
        return tree

    def _choose_classes(self, root: Path, known: list[str]) -> list[str]:
        names = known
        if self.classes:
            names = [name.strip() for name in self._names(root) if name.strip()]
        for name in names:
            if name not in known:
                raise IsthmusError(f"no class is called {name!r}; {nearest(name, known)}")
        return list(dict.fromkeys(names))

    def _names(self, root: Path) -> list[str]:
        for folder in (root / self.path, root, Path()):
            file = folder / self.classes
            if os.path.isfile(file):  # a long list is no name of a file, and no error
                with reading(file):
                    return file.read_text("utf-8").splitlines()
        return self.classes.split(",")


def _folders(folder: Path) -> list[str]:
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    if not names:
        raise IsthmusError(f"{folder} holds no folders; put one per class there, or set path")
    return names
