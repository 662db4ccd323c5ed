"""Own arrays: a file per client, or one file that says whose each example is."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from isthmus.data.arrays import Arrays
from isthmus.data.own.array_files import check_range, join_pieces, read_owners_file, read_pieces
from isthmus.data.own.own_files import ARRAYS, find_own_files, list_visible
from isthmus.errors import IsthmusError
from isthmus.ranges import Positive


@dataclass(frozen=True)
class Files:
    """Own arrays in .npz or .safetensors: one file per client, or one with x, y and client."""

    path: str = ""
    scale: Positive = 1.0  # whole-number inputs are divided by it
    tokens: bool = False  # whole-number inputs are symbols, which a network looks up

    clients: ClassVar[int] = 0
    model: ClassVar[str] = "mlp"
    partition: ClassVar[str] = "natural"

    def load(self, root: Path, seed: int) -> Arrays:
        """Reads the files."""
        return self.like(find_own_files(self.path, root), None)

    def like(self, path: Path, other: Arrays | None) -> Arrays:
        """Reads files, with the classes of other data if there are any."""
        arrays = self._read(path, other)._replace(tokens=self.tokens)
        if self.tokens:
            check_range(arrays)
        return arrays

    def _read(self, path: Path, other: Arrays | None) -> Arrays:
        if path.is_file():
            return read_owners_file(path, self.scale, other)
        clients = list_visible(path)
        for file in clients:
            if file.suffix not in ARRAYS:
                raise IsthmusError(
                    f"{file} lies among clients' files; expected one .npz or .safetensors per "
                    "client and nothing else; move it away"
                )
        return join_pieces(
            [p for file in clients for p in read_pieces(file, file.stem)], self.scale, other
        )
