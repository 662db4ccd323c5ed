"""The one exception that a user's mistake raises."""


class IsthmusError(ValueError):
    """Says in one line what was given, what was expected and what to do."""


def nearest(given: str, known: "list[str]") -> str:
    """Ends an error message about an unknown name with the nearest known one.

    >>> nearest("superfed-nm", ["fedavg", "superfed-mm"])
    "did you mean 'superfed-mm'?"
    """
    from difflib import get_close_matches

    close = get_close_matches(given, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
