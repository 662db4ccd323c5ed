"""What every data set becomes: arrays, kept as compact as they came."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Arrays(NamedTuple):
    """A data set: examples for the clients, and where there are any, the server's own test set.

    Integer inputs are divided by `scale` when they are used; floating-point ones are used as is.
    """

    x: NDArray[np.generic]
    y: NDArray[np.int64]
    test_x: NDArray[np.generic]  # no rows: the server has no test set
    test_y: NDArray[np.int64]
    classes: int
    scale: float = 1.0
