"""What the program said when it was called."""

import re
from collections.abc import Callable
from typing import NamedTuple


class Said(NamedTuple):
    """Its exit code, and what it printed where."""

    code: int
    out: str
    err: str

    @property
    def digest(self) -> str:
        (found,) = re.findall(r"^digest: ([0-9a-f]{16})$", self.out, re.MULTILINE)
        return str(found)

    @property
    def mistake(self) -> str:
        """The one line that says what was wrong, after the rounds that went well."""
        assert self.code == 2
        assert "Traceback" not in self.err + self.out
        lines = self.err.splitlines()
        (line,) = [line for line in lines if line.startswith("isthmus: ")]
        assert lines[-1] == line
        return line


Isthmus = Callable[..., Said]
