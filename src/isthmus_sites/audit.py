"""What a site was asked and what it answered: lines that are only ever added, each sealed.

Every line names the digest of the line before it, so that one that was changed or taken out later
is noticed.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from isthmus.errors import IsthmusError
from isthmus.system.files import describe_unwritable

START = "0" * 16


class AuditLog:
    """The log of one site; it is on the disk before an answer leaves."""

    def __init__(self, path: Path):
        self._path = path
        self._whole = not path.exists() or path.read_bytes()[-1:] in (b"", b"\n")
        self._last = START
        for _, self._last in read_lines(path):
            pass

    def add(self, **facts: Any) -> None:
        """Add a line."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"at": now, **facts, "after": self._last})
        try:
            with open(self._path, "ab", opener=_open_private) as file:
                file.write(b"" if self._whole else b"\n")  # behind a line that was cut off
                file.write(line.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise describe_unwritable(self._path, error) from None
        self._last, self._whole = seal(line.encode()), True


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)  # calls say what a site does, to its people alone


def seal(data: bytes) -> str:
    """Return the digest of a line or a message."""
    return hashlib.sha256(data).hexdigest()[:16]


def read_lines(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the lines with their digests; refuse a log that was changed.

    A last line that was cut off, by a full disk or a crash, is skipped: its answer never left.
    """
    if not path.exists():
        return
    last, lines = START, path.read_text("utf-8", "replace").split("\n")
    for number, line in enumerate(lines[:-1], 1):
        try:
            facts = json.loads(line)
            before = facts["after"]
        except (ValueError, KeyError, TypeError):
            continue  # cut off, and others were added behind it
        if before != last:
            raise IsthmusError(
                f"{path}, line {number}, does not follow the line before it; restore it from a copy"
            )
        last = seal(line.encode())
        yield facts, last
