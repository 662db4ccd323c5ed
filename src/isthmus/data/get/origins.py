"""Where the data sets come from that do not come with isthmus: origins.toml, as values."""

import tomllib
from pathlib import Path
from typing import Any, Literal, NamedTuple

Form = Literal["idx", "femnist", "shakespeare"]


class OriginFile(NamedTuple):
    """One file of a data set: where it goes below the data root, and where it comes from."""

    path: str
    md5: str
    nbytes: int
    mirrors: tuple[str, ...]


class Origin(NamedTuple):
    """One data set: what it is, where it may lie below the data root, how it is downloaded."""

    what: str
    licence: str
    places: tuple[tuple[str, ...], ...]  # any of them is enough: patterns that all have a file
    files: tuple[OriginFile, ...] = ()
    unpacks: str = ""  # the folder that its archive holds, where it is not read as it is
    hub: str = ""  # what the Hugging Face hub calls it
    hub_form: Form = "idx"  # how hub.py writes it
    by_hand: str = ""  # what to do where nobody publishes the files

    @property
    def nbytes(self) -> int:
        """The size of its files as they are sent; 0 where it is not known."""
        return sum(file.nbytes for file in self.files)

    def find(self, root: Path) -> Path | None:
        """Find the first of its files below the data root, if a whole set of them is there."""
        for place in self.places:
            first = [
                min((path for path in root.glob(pattern) if path.suffix != ".part"), default=None)
                for pattern in place
            ]
            if all(first):
                return first[0]
        return None


def read_origin(table: dict[str, Any]) -> Origin:
    """Read one table of origins.toml."""
    mirrors, files = table.pop("mirrors", ()), table.pop("files", ())
    return Origin(
        **table | {"places": tuple(map(tuple, table["places"]))},
        files=tuple(
            OriginFile(**file, mirrors=tuple(f"{url}/{Path(file['path']).name}" for url in mirrors))
            for file in files
        ),
    )


ORIGINS: dict[str, Origin] = {
    name: read_origin(table)
    for name, table in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
}
