"""Every client's personal model on every other client's data, as a table beside a run."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.errors import IsthmusError
from isthmus.run.open import SPLITS, Cross, Opened, Tell, ignore
from isthmus.run.writer import table_text
from isthmus.streams import stream
from isthmus.system.files import encode_text, overwrite

MOST = 100  # clients that are measured where nobody says which
NAMES = {"last": "personal models", "best": "personal models that were best on validation data,"}


def choose_clients(opened: Opened, count: int | None, split: str) -> list[int]:
    """Choose the clients to measure, of those with such data: all, or so many drawn at random."""
    place = SPLITS.index(split)
    federation = opened.setting.federation
    there = [i for i in range(len(opened)) if federation.sizes(i)[place]]
    count = min(len(there), MOST) if count is None else count
    if not 2 <= count <= len(there):
        raise IsthmusError(
            f"--sample {count}: {len(there)} clients have a {split} part; name at least two and at "
            f"most as many, for example --sample {min(10, max(2, len(there)))}"
        )
    drawn = stream(opened.experiment.seed, "cross").permutation(len(there))[:count]
    return [there[k] for k in sorted(drawn.tolist())]


def survey(
    run: Path,
    opened: Opened,
    ids: Sequence[int],
    split: str,
    tell: Tell = ignore,
    which: str = "last",
) -> tuple[Path, Cross]:
    """Measure the models of these clients on the data of all of them, and write cross.csv."""
    path = run / "cross.csv"
    with overwrite(path) as file:  # opened first: what cannot be written need not be measured
        found = opened.cross(ids, split, tell, which)
        file.write(encode_text(table_text(opened.experiment.toml(), "cross", _list_rows(found))))
    return path, found


def _list_rows(found: Cross) -> Iterator[tuple[Any, ...]]:
    clients, rounds, which, split, n, top1, loss = found
    on = list(zip(clients.tolist(), n.tolist(), strict=True))
    for k, (of, round) in enumerate(zip(clients.tolist(), rounds.tolist(), strict=True)):
        for (client, count), *figures in zip(on, top1[k].tolist(), loss[k].tolist(), strict=True):
            yield round, which, "personal", of, client, split, count, *figures


def describe(found: Cross, total: int) -> str:
    """Describe how own models do beside others', over the clients that were measured."""
    top1, count = found.top1, len(found.clients)
    own = np.diagonal(top1)
    others = np.where(np.eye(count, dtype=bool), np.nan, top1)
    best = np.nanmax(others, axis=0)
    served = f"all {count}" if count == total else f"{count} of {total}"
    rounds = sorted({int(found.rounds.min()), int(found.rounds.max())})
    when = f"round {rounds[0]}" if len(rounds) == 1 else f"rounds {rounds[0]} to {rounds[1]}"
    return "\n".join(
        [
            f"{NAMES[found.which]} after {when}, on the {found.split} parts of {served} clients; "
            "top-1, mean over clients:",
            f"  a client's own model on its data {own.mean():.2%}",
            f"  the others' models on its data {np.nanmean(others):.2%}",
            f"  the best of the others' on its data {best.mean():.2%} (chosen on these very data)",
            f"  no other's model is better than its own for {np.sum(own >= best)} of {count}",
        ]
    )
