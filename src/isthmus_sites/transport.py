"""What carries messages between a server and its sites, whatever it is made of."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, Protocol


class SiteAnswer(NamedTuple):
    """What became of a message to a site."""

    site: str
    message: bytes | None  # None: it did not answer
    why: str = ""  # it did not: absent, late, failed, ...


class Transport(Protocol):
    """Sends messages to sites and brings their answers."""

    @property
    def sites(self) -> Collection[str]:
        """Those that are there, whether or not they are clients of the run."""
        ...

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> Iterator[SiteAnswer | None]:
        """Sends each site its message; yields answers as they come, for at most so long.

        Yields None at least every tenth of a second, so that who asks can look at a clock. Every
        site is answered for: also one that is absent, or that did not answer in time. Who stops
        asking before closes the iterator; answers that come later are dropped.
        """
        ...


class Answerer(Protocol):
    """A site, as a transport sees it."""

    def answer(self, message: bytes) -> bytes:
        """Answers a message; a message that is refused is answered too, and nothing is raised."""
        ...
