"""The call that is under way: who was asked, who has answered, written down for who looks."""

import datetime as dt
import json
import time
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from isthmus.errors import UnwritableError
from isthmus.system.files import write_text
from isthmus_sites import codec
from isthmus_sites.codec import CallHead
from isthmus_sites.forms import JOIN
from isthmus_sites.transport import SiteAnswer, Transport

PAUSE = 0.2  # seconds between two versions of the file


class WatchedTransport:
    """A transport that writes down how a call stands, as long as it lasts; the last one stays."""

    def __init__(self, transport: Transport, path: Path) -> None:
        self._transport = transport
        self._path = path

    @property
    def sites(self) -> Collection[str]:
        """Those that are there."""
        return self._transport.sites

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> Iterator[SiteAnswer | None]:
        """Sends each site its message; see Transport."""
        if not messages:
            return
        first = next(iter(messages.values()))
        head: CallHead = codec.read_head(first, CallHead, len(first))
        since = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
        round = head.t + (head.function != JOIN)  # newcomers join after it
        facts: dict[str, Any] = {"round": round, "function": head.function, "since": since}
        outcomes: dict[str, str] = dict.fromkeys(messages, "")
        shown, written = self._write(facts, outcomes), time.monotonic()
        answers = self._transport.ask(messages, seconds)
        try:
            for answer in answers:
                if answer is not None:
                    why = answer.why or "it did not answer"
                    outcomes[answer.site] = "answered" if answer.message is not None else why
                if outcomes != shown and time.monotonic() - written > PAUSE:
                    shown, written = self._write(facts, outcomes), time.monotonic()
                yield answer
        finally:
            self._write(facts, outcomes)
            if isinstance(answers, Generator):
                answers.close()

    def _write(self, facts: Mapping[str, Any], outcomes: Mapping[str, str]) -> dict[str, str]:
        with suppress(UnwritableError):  # a full disk ends no call
            write_text(self._path, json.dumps({**facts, "outcomes": outcomes}))
        return dict(outcomes)
