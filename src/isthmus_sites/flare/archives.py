"""Small zip files that travel between people: written whole, read with suspicion."""

import json
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

from isthmus.errors import IsthmusError
from isthmus.system.files import open_regular, write_bytes

LARGEST = 2**16  # bytes of a member; a certificate has two thousand
FORMAT = 1


def write_archive(path: Path, members: Mapping[str, bytes]) -> None:
    """Write an archive; the same members give the same bytes."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    write_bytes(path, buffer.getvalue())


def read_archive(path: Path, expected: tuple[str, ...], maker: str) -> dict[str, bytes]:
    """Read an archive that has exactly these members, each small; names are never paths here."""
    try:
        with open_regular(path) as file:
            data = file.read(LARGEST * (len(expected) + 1))
        with zipfile.ZipFile(BytesIO(data)) as archive:
            entries = archive.infolist()
            if sorted(entry.filename for entry in entries) != sorted(expected):
                refuse(path, "it has other files in it", maker)
            if any(e.file_size > LARGEST or e.compress_type or e.flag_bits & 1 for e in entries):
                refuse(path, "a file in it is too large, packed or locked", maker)
            return {entry.filename: archive.read(entry) for entry in entries}
    except OSError as error:
        refuse(path, str(error.strerror or error), maker)
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, IsthmusError):
            raise
        refuse(path, "it is no whole zip file", maker)


def read_head(path: Path, data: bytes, keys: Mapping[str, type], maker: str) -> dict[str, Any]:
    """Return the JSON object of an archive: these keys, of these types, and no others."""
    try:
        head = json.loads(data)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        refuse(path, "it was written by another version of isthmus, or by something else", maker)
    kinds = {key: type(value) for key, value in head.items() if key != "format"}
    if kinds != dict(keys):
        refuse(path, "its description lacks something, or has something else", maker)
    return head


def refuse(path: Path, why: str, maker: str) -> NoReturn:
    """Refuse a file, with the reason and the command that writes valid ones."""
    raise IsthmusError(f"{path} is refused: {why}; ask for one from `{maker}`")
