"""How much memory is free."""

from pathlib import Path


def free_memory() -> int | None:
    """Gives the bytes of memory that are free, where the system tells."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else None
