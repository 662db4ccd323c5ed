"""Resident processes that run client functions, one thread each.

A client's result does not depend on who computes it: any number of workers gives the same bits.
Where the system can fork, workers begin with all that the run has in memory, data included, and
parameters travel through memory that both sides see. Elsewhere they are started afresh and sent
what they need.
"""

import multiprocessing
import os
import signal
import sys
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, TypeVar

from isthmus.context import Call, Request, Setting
from isthmus.engines import messages
from isthmus.engines.base import ClientError
from isthmus.engines.profile import MESSAGES, Profile
from isthmus.errors import IsthmusError
from isthmus.system import machine


class Answer(NamedTuple):
    """What a worker found for a client, and what else it has to tell."""

    result: Any
    notes: list[str]
    seconds: Mapping[str, float] = {}  # what they were spent on, where somebody wants to know


Compute = Callable[[Setting, Call, Request], Answer]

T = TypeVar("T")

START = "fork" if sys.platform == "linux" else "spawn"  # elsewhere forking is not safe
PATIENCE = 5.0  # seconds for a worker to end by itself


def cores() -> int:
    """Counts the cores that this process may use; 1 where a worker would run the script again."""
    return machine.cores() if START == "fork" else 1


class Worker:
    """One process, and the two ends of what leads to it."""

    def __init__(self, setting: Setting, compute: Compute, call_room: Any, start: str):
        context: Any = multiprocessing.get_context(start)
        forks = start == "fork"
        setting = setting._replace(engine=None)  # type: ignore[arg-type]  # that is this process's
        # Answers come in two rooms by turns: one is read while the next is being computed.
        self.inbox, *self.outboxes = (messages.arena() if forks else None for _ in range(3))
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=serve,
            args=(setting, compute, theirs, call_room, self.inbox, list(self.outboxes)),
            name="isthmus-worker",
            daemon=True,
        )
        with warnings.catch_warnings():  # of forking beside threads: they hold nothing we use
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        theirs.close()
        self.request: Request | None = None  # what it is at
        self.told: messages.Letter | None = None  # the call that it knows of

    def stop(self) -> None:
        """Ends the process, whatever it is at."""
        self.connection.close()
        self.process.terminate()
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        for room in (self.inbox, *self.outboxes):
            if room is not None:
                room.close()


class Pool:
    """The workers of one run."""

    def __init__(
        self,
        setting: Setting,
        count: int,
        compute: Compute,
        start: str = START,
        profile: Profile | None = None,
    ):
        self.setting = setting
        self._profile = profile
        self.notes: list[str] = []
        self._compute = compute
        self._start = start
        self._room = messages.arena() if start == "fork" else None
        things = {"method": setting.method, "task": setting.task}
        self._names = {id(thing): name for name, thing in things.items()}
        self._known = things
        self._workers = [self._hire() for _ in range(count)]
        self._ending = weakref.finalize(self, _dismiss, self._workers, self._room)

    def run(self, call: Call, requests: Iterator[Request]) -> Iterator[tuple[int, Any]]:
        """Yields (client, what the function returned), in the order in which they come."""
        letter = self._timed(messages.write)(call, self._names, self._room)
        again: set[int] = set()
        try:
            for worker, first in zip(self._workers, requests, strict=False):
                self._send(worker, letter, first)
            while busy := [worker for worker in self._workers if worker.request is not None]:
                ready = wait([worker.connection for worker in busy])
                for worker in [worker for worker in busy if worker.connection in ready]:
                    request = worker.request
                    assert request is not None
                    try:
                        answer = worker.connection.recv()
                    except (EOFError, ConnectionError):
                        self._replace(worker, call, letter, request, again)
                        continue
                    worker.request = None
                    if (following := next(requests, None)) is not None:
                        self._send(worker, letter, following)
                    found = self._read(worker, answer)
                    if isinstance(found, BaseException):
                        raise found
                    self.notes += found.notes
                    if self._profile is not None:
                        self._profile.add(found.seconds)
                    yield request.i, found.result
        finally:
            # Whoever stopped listening leaves workers at their work: they cannot be told to stop.
            for k, worker in enumerate(self._workers):
                if worker.request is not None:
                    worker.stop()
                    self._workers[k] = self._hire()

    def close(self) -> None:
        """Ends all workers, as does forgetting the pool."""
        self._ending()

    def _hire(self) -> Worker:
        return Worker(self.setting, self._compute, self._room, self._start)

    def _send(self, worker: Worker, call: messages.Letter, request: Request) -> None:
        worker.request = request
        news = call if worker.told is not call else None
        worker.told = call
        with suppress(ConnectionError):  # it is dead, which is seen when its answer is read
            letter = self._timed(messages.write)(request, self._names, worker.inbox)
            worker.connection.send((news, letter))

    def _read(self, worker: Worker, answer: messages.Letter) -> Any:
        found = self._timed(messages.read)(answer, self._known, worker.outboxes[0], keep=True)
        worker.outboxes.reverse()
        return found

    def _timed(self, function: Callable[..., T]) -> Callable[..., T]:
        return function if self._profile is None else self._profile.timed(MESSAGES, function)

    def _replace(
        self, worker: Worker, call: Call, letter: messages.Letter, request: Request, again: set[int]
    ) -> None:
        """Puts a new worker in the place of one that died; it tries the same client once more."""
        worker.process.join(PATIENCE)
        code = worker.process.exitcode
        died = f"client {request.i}, round {call.t + 1}: its worker process ended ({ending(code)})"
        worker.request = None
        worker.stop()
        self._workers[self._workers.index(worker)] = new = self._hire()
        if request.i in again:
            raise ClientError(
                f"{died}, twice; expected an answer; look for what kills processes here, such as "
                "too little memory, or set --workers 1"
            )
        again.add(request.i)
        self.notes.append(f"{died}; computed again")
        self._send(new, letter, request)


def _dismiss(workers: list[Worker], room: Any) -> None:
    for worker in workers:
        worker.stop()
    workers.clear()
    if room is not None:
        room.close()


def ending(code: int | None) -> str:
    """Says how a process ended."""
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def serve(
    setting: Setting,
    compute: Compute,
    connection: Connection,
    call_room: Any,
    inbox: Any,
    outboxes: list[Any],
) -> None:
    """Answers requests until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run decides when to stop
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _end_with_the_run()
    known = {"method": setting.method, "task": setting.task}
    call: Call | None = None
    while True:
        try:
            news, letter = connection.recv()
        except (EOFError, ConnectionError):
            return
        if news is not None:
            call = messages.read(news, known, call_room, keep=False)
        assert call is not None
        try:
            found: Any = compute(setting, call, messages.read(letter, known, inbox, keep=False))
        except BaseException as error:  # whatever it is, the run must hear of it
            found = error
            if not isinstance(error, IsthmusError):
                error.add_note("".join(traceback.format_exception(error)))
        connection.send(messages.write(found, {}, outboxes[0]))
        outboxes.reverse()


def _end_with_the_run() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)  # in the middle of whatever it is at: nobody will ask for it

    threading.Thread(target=watch, daemon=True).start()
