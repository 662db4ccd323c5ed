"""Where own files are, and of which kind they are."""

import os
from pathlib import Path

from isthmus.errors import IsthmusError

TABLES = (".csv", ".tsv", ".txt", ".parquet")
ARRAYS = (".npz", ".safetensors")
KINDS = (
    "a table (.csv, .tsv, .txt, .parquet), an .npz or .safetensors file, a directory of one such "
    "file per client, or one with a folder per client"
)


def detect_kind(path: Path) -> str:
    """Return the name of the data source that reads a file or a directory."""
    if path.is_file():
        suffix = path.suffix.lower()
        kind = "table" if suffix in TABLES else "files" if suffix in ARRAYS else None
    else:
        entries = list_visible(path)
        if any(entry.is_dir() for entry in entries):
            kind = "folders"
        else:
            kind = "files" if any(entry.suffix in ARRAYS for entry in entries) else None
    if kind is None:
        raise IsthmusError(f"{path} is of no known kind; give {KINDS}")
    return kind


def find_own_files(path: str, root: Path) -> Path:
    """Find own files at the path given, or else by their name in the data root."""
    if not path:
        raise IsthmusError("there is no path to own data; for example --set path=patients.csv")
    for place in (Path(path), root / path, root / Path(path).name):
        if os.path.exists(place):  # False also of what no file is called
            return place.absolute()
    raise IsthmusError(
        f"{path} is not there, nor is {root / Path(path).name}; check the path, or name its folder "
        "with --data-root"
    )


def list_visible(folder: Path) -> list[Path]:
    """List what is in a folder, in the order of the names, without hidden files."""
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise IsthmusError(f"{folder} cannot be read ({error.strerror}); give {KINDS}") from None
