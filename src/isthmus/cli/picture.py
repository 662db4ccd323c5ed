"""A picture of who has what, for a terminal: a row per client, a column per class, shaded cells."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SHADES = " ░▒▓█"
PLAIN = " .:*#"  # where the terminal's encoding has no shades
ROWS = 40
LONGEST = 20  # letters of a client's name


def draw_picture(
    counts: NDArray[np.int64],
    width: int = 80,
    encoding: str = "utf-8",
    names: Sequence[str] = (),
) -> str:
    """Draw label counts [N, C] as shares of each client's examples.

    >>> print(draw_picture(np.array([[4, 0], [1, 3]]), encoding="ascii"))
    client  examples
         0         4  ##
         1         4  ..**
    share of a client's examples: . up to 25%, : up to 50%, * up to 75%, # up to 100%
    """
    shades = SHADES if _can_encode(SHADES, encoding) else PLAIN
    rows = _choose_clients(counts)
    sizes = counts.sum(axis=1)
    clients = [f"{row} {names[row]}"[:LONGEST] if names else str(row) for row in rows]
    clients = [_replace_unknown(client, encoding) for client in clients]
    left = max(len("client"), *map(len, clients))
    right = max(len("examples"), len(f"{sizes.max():,}"))
    room = max(width - left - right - 4, 1)
    cells, joined = _join_classes(counts[rows] / sizes[rows, None], room)
    wide = 2 if 2 * cells.shape[1] <= room else 1
    top = cells.max()
    levels = np.ceil(cells / top * (len(shades) - 1)).astype(int)  # 0 only where there is none
    lines = [f"{'client':>{left}}  {'examples':>{right}}"]
    for row, client, shaded in zip(rows, clients, levels, strict=True):
        cell = "".join(shades[level] * wide for level in shaded)
        lines.append(f"{client:>{left}}  {sizes[row]:>{right},}  {cell}".rstrip())
    limits = [top * level / (len(shades) - 1) for level in range(1, len(shades))]
    legend = ", ".join(
        f"{shade} up to {limit:.0%}" for shade, limit in zip(shades[1:], limits, strict=True)
    )
    lines.append(f"share of a client's examples: {legend}")
    if joined > 1:
        lines.append(f"a column is {joined} classes")
    if len(rows) < len(counts):
        lines.append(
            f"{len(rows)} of {len(counts):,} clients, of every most frequent class in proportion"
        )
    return "\n".join(lines)


def _choose_clients(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pick ROWS clients at most, evenly from them all in the order of their largest class."""
    order = np.argsort(counts.argmax(axis=1), kind="stable")
    even = np.linspace(0, len(counts) - 1, min(ROWS, len(counts)))
    return np.sort(order[even.round().astype(int)])


def _join_classes(shares: NDArray[np.float64], room: int) -> tuple[NDArray[np.float64], int]:
    """Join neighbouring classes until there is room for all columns."""
    joined = -(-shares.shape[1] // room)
    return np.add.reduceat(shares, np.arange(0, shares.shape[1], joined), axis=1), joined


def _replace_unknown(text: str, encoding: str) -> str:
    return text if _can_encode(text, encoding) else text.encode("ascii", "replace").decode()


def _can_encode(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
