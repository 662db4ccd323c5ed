"""The errors of a data set's files: they are not there, or cannot be read."""

import shlex
from pathlib import Path

from isthmus.errors import IsthmusError


def refuse_missing(name: str, what: str, root: Path) -> IsthmusError:
    """Makes the error that says what is not there, and the command that gets it.

    >>> print(refuse_missing("mnist", "train-images-idx3-ubyte.gz", Path("data")))
    no train-images-idx3-ubyte.gz; expected the original files of mnist; get them with: \
isthmus data get mnist --data-root data
    """
    return IsthmusError(
        f"no {what}; expected the original files of {name}; get them with: "
        f"isthmus data get {name} --data-root {shlex.quote(str(root))}"
    )


def refuse_broken(where: object, error: BaseException) -> IsthmusError:
    """Makes the error of a file that cannot be read, in one line whatever the reason has."""
    reason = " ".join(str(getattr(error, "strerror", None) or error).split())[:200]
    return IsthmusError(
        f"{where} cannot be read ({reason or type(error).__name__}); get the file again"
    )
