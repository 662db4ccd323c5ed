"""The errors of a data set's files: they are missing, or cannot be read."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isthmus.errors import IsthmusError
from isthmus.system.files import open_regular

AGAIN = "get the file again"


def refuse_missing(name: str, what: str, root: Path) -> IsthmusError:
    """Return the error that names what is missing and the command that downloads it.

    >>> print(refuse_missing("mnist", "train-images-idx3-ubyte.gz", Path("data")))
    no train-images-idx3-ubyte.gz; download the original files of mnist with: \
isthmus data get mnist --data-root data
    """
    return IsthmusError(
        f"no {what}; download the original files of {name} with: "
        f"isthmus data get {name} --data-root {shlex.quote(str(root))}"
    )


@contextmanager
def reading(where: object, advice: str = AGAIN) -> Iterator[None]:
    """Turn whatever a damaged file makes a reader raise into one line; `advice` ends it.

    A path must be a regular file: a pipe is silent, and a device never ends.
    """
    try:
        if isinstance(where, Path):
            open_regular(where).close()
        yield
    except IsthmusError:
        raise
    except Exception as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())[:200]
        raise IsthmusError(
            f"{where} cannot be read ({reason or type(error).__name__}); {advice}"
        ) from error
