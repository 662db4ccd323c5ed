"""Any data set of the Hugging Face hub whose examples are images, or rows of numbers.

`--data hf:OWNER/NAME` reads what `isthmus data get hf:OWNER/NAME` has put into the folder
`hub/OWNER/NAME` of the data root: Parquet files, by configuration and split. The hub's description
of the columns says which of them has the images and which the classes. The test split is the
server's test set.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from isthmus.data.arrays import Arrays
from isthmus.data.file_errors import reading, refuse_missing
from isthmus.data.get.hub import decode, hub_folder, list_files, read_rows
from isthmus.data.own.arrays import Piece, join_pieces
from isthmus.data.own.cells import number_owners
from isthmus.errors import IsthmusError
from isthmus.ranges import NonNegativeInt, Positive


@dataclass(frozen=True)
class Hub:
    """A data set of the Hugging Face hub, --data hf:OWNER/NAME: images or numbers, and a label."""

    path: str = ""  # OWNER/NAME
    config: str = ""  # the configuration, if there are several
    label: str = ""  # the column of the classes; empty: the one that the hub describes as such
    client: str = ""  # the column that says whose an example is; empty: there is none
    train: str = "train"  # the split that clients share
    test: str = "test"  # the split that is the server's test set, if there is one
    size: NonNegativeInt = 0  # images become size x size; 0: all must have one size already
    channels: Literal[1, 3] = 3  # grey or coloured images
    scale: Positive = 255.0  # whole-number inputs are divided by it

    clients: ClassVar[int] = 100
    model: ClassVar[str] = "mlp"
    partition: ClassVar[str] = "dirichlet-clientwise"

    def load(self, root: Path, seed: int) -> Arrays:
        """Read the Parquet files below the data root."""
        folder = hub_folder(self.path, root)
        train, test = (list_files(folder, s, self.config) for s in (self.train, self.test))
        if not self.path or not train:
            raise refuse_missing(f"hf:{self.path}", f"*/{self.train}/*.parquet in {folder}", root)
        configs = sorted({file.parent.parent.name for file in train})
        if len(configs) > 1:
            raise IsthmusError(
                f"{self.path} has the configurations {', '.join(configs)}; choose one, for example "
                f"--set config={configs[0]}"
            )
        arrays, owners = self._read(train, None)
        if self.client:
            numbered = number_owners(np.array(owners), str(folder))
            arrays = arrays._replace(owner=numbered.numbers, names=numbered.names)
        if test:
            held, _ = self._read(test, arrays)
            classes = max(arrays.classes, held.classes)
            arrays = arrays._replace(test_x=held.x, test_y=held.y, classes=classes)
        return arrays

    def _read(self, files: Sequence[Path], like: Arrays | None) -> tuple[Arrays, list[Any]]:
        with reading(files[0], f"get it again: isthmus data get hf:{self.path} --force"):
            features = _describe_columns(files[0])
            image = _find(features, "Image")
            label = self.label or _find(features, "ClassLabel") or "label"
            for name in (label, self.client):
                if name and name not in features:
                    raise IsthmusError(
                        f"{self.path} has no column {name!r}; its columns are "
                        f"{', '.join(features)}; set label and client"
                    )
            inputs = [image] if image else [n for n in features if n not in (label, self.client)]
            rows = list(read_rows(files, [n for n in (*inputs, label, self.client) if n], _hide))
            if image:
                x = self._stack([row[image] for row in rows])
            else:
                x = np.array([np.hstack([row[name] for name in inputs]) for row in rows])
            piece = Piece(files[0], None, None, x, np.array([row[label] for row in rows]))
        joined = join_pieces([piece], self.scale, like)
        names = features[label].get("names") if isinstance(features[label], dict) else None
        if names and not joined.labels:
            joined = joined._replace(labels=tuple(names), classes=len(names))
        return joined, [row[self.client] for row in rows] if self.client else []

    def _stack(self, images: Sequence[dict[str, Any]]) -> NDArray[np.uint8]:
        mode = "L" if self.channels == 1 else "RGB"
        decoded = [decode(image, mode, self.size) for image in images]
        sizes = sorted({pixels.shape[:2] for pixels in decoded})
        if len(sizes) > 1:
            raise IsthmusError(
                f"{self.path} has images of {len(sizes)} sizes, {sizes[0]} to {sizes[-1]}; set "
                f"size, for example --set data.size={sizes[0][0]}"
            )
        x = np.stack(decoded)
        return x[:, None] if self.channels == 1 else np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def _describe_columns(file: Path) -> dict[str, Any]:
    """Return the hub's description of each column, or at least their names."""
    from pyarrow import parquet

    schema = parquet.read_schema(file)
    described = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    known: dict[str, Any] = described.get("info", {}).get("features", {})
    return {name: known.get(name) for name in schema.names}


def _find(features: dict[str, Any], kind: str) -> str:
    """Return the first column of a kind; empty if there is none."""
    kinds = {name: each.get("_type") for name, each in features.items() if isinstance(each, dict)}
    return next((name for name, each in kinds.items() if each == kind), "")


def _hide(what: str, done: int, total: int) -> None:
    pass
