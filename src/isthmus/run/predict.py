"""Predictions of a personal model for new examples."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from isthmus.data.arrays import Arrays
from isthmus.data.federation import Federation, Splits
from isthmus.data.own.newcomer_files import read_inputs
from isthmus.data.scaling import Scales
from isthmus.engines.base import one_thread
from isthmus.run.cells import format_lines
from isthmus.run.open import Personal
from isthmus.system.files import write_text

SOME = 1000  # examples at a time


def predict(
    model: Personal,
    path: Path,
    like: Arrays,
    scales: Scales | None = None,
    say: Callable[[str], object] = lambda note: None,
) -> NDArray[np.float64]:
    """Return the probability of each class for each example of a file, [n, C].

    The inputs are prepared as those of the run's data: their words in the same places, scaled as
    they were, or by the `scales` of that client. What was left out of it is said, a sentence each.
    """
    arrays = read_inputs(path, like)
    for note in arrays.notes:
        say(note)
    rows, nothing = np.arange(len(arrays.x)), np.zeros(0, np.int64)
    ready = Federation(arrays, [Splits(rows, nothing, nothing)], scales=scales).split(0, "train").x
    with one_thread():
        parts = [torch.softmax(model(some).double(), 1) for some in torch.split(ready, SOME)]
    return np.asarray(torch.cat(parts))


def write_predictions(
    path: Path, probabilities: NDArray[np.float64], labels: tuple[str, ...]
) -> None:
    """Write a line per example: its number, the likeliest class, the probability of each."""
    names = labels or tuple(str(label) for label in range(probabilities.shape[1]))
    rows: list[Any] = [["row", "predicted", *(f"p({name})" for name in names)]]
    likeliest = probabilities.argmax(1).tolist()
    for number, (label, each) in enumerate(zip(likeliest, probabilities.tolist(), strict=True), 1):
        rows.append([number, names[label], *(f"{p:.6f}" for p in each)])
    write_text(path, format_lines(rows))
