"""The one exception that a user's mistake raises."""


class IsthmusError(ValueError):
    """A user's mistake: one line with what was given, what would be right, what to do."""


class UnwritableError(IsthmusError):
    """A file cannot be written."""


class ClusterLostError(IsthmusError):
    """The cluster is gone on which a run was computed."""


def quote(value: object) -> str:
    """Show a value that was given, at a length that a line can hold.

    >>> quote("lr"), quote("x" * 1000)
    ("'lr'", "'xxxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxxxxxxxxxx'")
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} too long to be shown"
    return text if len(text) <= 120 else f"{text[:29]}...{text[-29:]}"


def nearest(given: str, known: "list[str]") -> str:
    """End an error message about an unknown name with the nearest known one.

    >>> nearest("superfed-nm", ["fedavg", "superfed-mm"])
    "did you mean 'superfed-mm'?"
    """
    from difflib import get_close_matches

    close = get_close_matches(given[:100], known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
