"""What happened, one JSON object per line: written by several processes, read by anybody."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

from isthmus.system.files import append_text

JOINED = "newcomer"  # what the server's job tells of newcomers


def write_event(path: Path, event: str, **facts: Any) -> None:
    """Adds an event to a file."""
    at = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    append_text(path, json.dumps({"at": at, "event": event, **facts}) + "\n")


def read_events(path: Path, start: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Reads whole lines from a place in a file on; gives the place to go on from."""
    if not path.exists():
        return [], start
    with path.open("rb") as file:
        file.seek(start)
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    rows = []
    for line in whole.splitlines():
        try:
            row = json.loads(line)
        except ValueError:  # the disk was full
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows, start + len(whole)
