"""Opens addresses of the web, and reads what comes as long as it comes in time.

The library's own limit is for each piece that arrives: a server that sends a letter now and then,
or one interim answer after the other, would never meet it.
"""

import io
import socket
import time
from contextlib import suppress
from functools import partial
from http.client import HTTPResponse
from typing import Any, NamedTuple
from urllib import request

HEAD = 2**20  # bytes of an answer's head, and of all redirections before it
ROOM = 10  # an answer may have so many times the bytes that are wanted, with what wraps them


class Patience(NamedTuple):
    """How long a mirror is waited for."""

    seconds: float = 10.0  # for the head of an answer, and between looks at the speed
    slowest: float = 1000.0  # bytes a second
    pauses: tuple[float, ...] = (1.0, 3.0)  # before another try that is hoped to bring more


class Pace:
    """How much has come in which time: the head of an answer at once, the rest at some speed."""

    def __init__(self, patience: Patience):
        self._patience = patience
        self._mark = time.monotonic()
        self._since = 0
        self._left = HEAD
        self._in_head = True

    def begin_body(self, nbytes: int) -> None:
        """Goes on to what the answer holds, of which so many bytes are wanted."""
        self._mark, self._since = time.monotonic(), 0
        self._left = HEAD + ROOM * nbytes
        self._in_head = False

    def wait(self) -> float:
        """Gives the seconds to wait for more; a TimeoutError if too little has come."""
        passed = time.monotonic() - self._mark
        if passed >= self._patience.seconds:
            if self._in_head or self._since < self._patience.slowest * passed:
                raise TimeoutError(f"sent {self._since:,} bytes in {passed:.2g} s")
            self._mark, self._since, passed = time.monotonic(), 0, 0.0
        return self._patience.seconds - passed

    def count(self, nbytes: int) -> None:
        """Counts what has come; an OSError if it is more than anybody needs."""
        self._since += nbytes
        self._left -= nbytes
        if self._left < 0:
            raise OSError("sent more than there can be")


class _TimedReader(io.RawIOBase):
    """What a socket receives."""

    def __init__(self, raw: Any, sock: socket.socket, pace: Pace):
        self._raw = raw  # the socket stays open until this is closed
        self._sock = sock
        self._pace = pace

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Any:
        while True:
            self._sock.settimeout(self._pace.wait())  # until the next look, which may go well
            with suppress(TimeoutError):
                count = self._sock.recv_into(buffer)
                self._pace.count(count)
                return count

    def close(self) -> None:
        self._raw.close()
        io.RawIOBase.close(self)


class _TimedResponse(HTTPResponse):
    """An answer that is read at some pace."""

    def __init__(self, pace: Pace, sock: socket.socket, *arguments: Any, **options: Any):
        HTTPResponse.__init__(self, sock, *arguments, **options)
        raw = self.fp.detach()
        self.fp = io.BufferedReader(_TimedReader(raw, sock, pace))


def open_web(url: str, headers: dict[str, str], patience: Patience) -> tuple[HTTPResponse, Pace]:
    """Opens an address of http or https and no other, wherever it is sent on to."""
    pace = Pace(patience)
    opener = request.OpenerDirector()
    for handler in (request.HTTPHandler(), request.HTTPSHandler()):
        opener.add_handler(_read_at_pace(handler, pace))
    for kind in (
        request.ProxyHandler,
        request.HTTPRedirectHandler,
        request.HTTPDefaultErrorHandler,
        request.HTTPErrorProcessor,
        request.UnknownHandler,
    ):
        opener.add_handler(kind())
    wanted = request.Request(url, headers=headers)
    return opener.open(wanted, timeout=patience.seconds), pace


def _read_at_pace(handler: Any, pace: Pace) -> Any:
    """Makes a handler's connections read their answers at some pace."""
    do_open = handler.do_open

    def open_at_pace(connect: Any, wanted: Any, **options: Any) -> Any:
        def connect_at_pace(*arguments: Any, **more: Any) -> Any:
            connection = connect(*arguments, **more)
            connection.response_class = partial(_TimedResponse, pace)
            return connection

        return do_open(connect_at_pace, wanted, **options)

    handler.do_open = open_at_pace
    return handler
