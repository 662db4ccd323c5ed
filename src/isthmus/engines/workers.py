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

from isthmus.context import Call, Request, RunContext
from isthmus.engines import messages
from isthmus.engines.base import ClientError
from isthmus.engines.profile import MESSAGES, Profile
from isthmus.errors import IsthmusError
from isthmus.system.machine import count_cores


class Answer(NamedTuple):
    """What a worker computed for a client, what it noted, and what it measured."""

    result: Any
    notes: list[str]
    seconds: Mapping[str, float] = {}  # by what they were spent on, where the engine is watched


Compute = Callable[[RunContext, Call, Request], Answer]

T = TypeVar("T")

START_METHOD = "fork" if sys.platform == "linux" else "spawn"  # elsewhere forking is not safe
STOP_TIMEOUT_S = 5.0  # for a worker to end by itself


def count_workers() -> int:
    """Counts the workers of a run: one for each core; 1 where each would run the script again."""
    return count_cores() if START_METHOD == "fork" else 1


class Worker:
    """One process, the connection to it, and the memory that both share."""

    def __init__(self, context: RunContext, compute: Compute, call_memory: Any, start: str):
        processes: Any = multiprocessing.get_context(start)
        forks = start == "fork"
        context = context._replace(engine=None)  # type: ignore[arg-type]  # that is this process's
        # Answers take two pieces of memory in turns: one is read while the next is computed.
        memory = [messages.allocate_shared() if forks else None for _ in range(3)]
        self.request_memory, *self.answer_memory = memory
        self.connection, theirs = processes.Pipe()
        self.process: BaseProcess = processes.Process(
            target=serve,
            args=(context, compute, theirs, call_memory, memory[0], memory[1:]),
            name="isthmus-worker",
            daemon=True,
        )
        with warnings.catch_warnings():  # of forking beside threads: they hold nothing we use
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        theirs.close()
        self.request: Request | None = None  # what it computes
        self.call: messages.Message | None = None  # the last call that it was sent

    def stop(self) -> None:
        """Ends the process, whatever it computes."""
        self.connection.close()
        self.process.terminate()
        self.process.join(STOP_TIMEOUT_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        for memory in (self.request_memory, *self.answer_memory):
            if memory is not None:
                memory.close()


class Pool:
    """The worker processes of one run."""

    def __init__(
        self,
        context: RunContext,
        count: int,
        compute: Compute,
        start: str = START_METHOD,
        profile: Profile | None = None,
    ):
        self.context = context
        self._profile = profile
        self.notes: list[str] = []
        self._compute = compute
        self._start = start
        self._memory = messages.allocate_shared() if start == "fork" else None
        self._known = {"method": context.method, "task": context.task}
        self._names = {id(thing): name for name, thing in self._known.items()}
        self._workers = [self._start_worker() for _ in range(count)]
        self._stop_all = weakref.finalize(self, _stop_all, self._workers, self._memory)

    def run(self, call: Call, requests: Iterator[Request]) -> Iterator[tuple[int, Any]]:
        """Yields (client, what the function returned), in the order in which they come."""
        call_message = self._measure(messages.write)(call, self._names, self._memory)
        retried: set[int] = set()
        try:
            for worker, first in zip(self._workers, requests, strict=False):
                self._send(worker, call_message, first)
            while busy := [worker for worker in self._workers if worker.request is not None]:
                ready = wait([worker.connection for worker in busy])
                for worker in [worker for worker in busy if worker.connection in ready]:
                    request = worker.request
                    assert request is not None
                    try:
                        message = worker.connection.recv()
                    except (EOFError, ConnectionError):
                        self._replace(worker, call, call_message, request, retried)
                        continue
                    worker.request = None
                    if (following := next(requests, None)) is not None:
                        self._send(worker, call_message, following)
                    answer = self._read(worker, message)
                    if isinstance(answer, BaseException):
                        raise answer
                    self.notes += answer.notes
                    if self._profile is not None:
                        self._profile.add(answer.seconds)
                    yield request.i, answer.result
        finally:
            # A caller that stops early leaves workers computing: no message would stop them.
            for k, worker in enumerate(self._workers):
                if worker.request is not None:
                    worker.stop()
                    self._workers[k] = self._start_worker()

    def close(self) -> None:
        """Ends all workers; so does the garbage collector when it takes the pool."""
        self._stop_all()

    def _start_worker(self) -> Worker:
        return Worker(self.context, self._compute, self._memory, self._start)

    def _send(self, worker: Worker, call: messages.Message, request: Request) -> None:
        """Sends a request, after the call that it belongs to if the worker has not got that."""
        worker.request = request
        new_call = call if worker.call is not call else None
        worker.call = call
        with suppress(ConnectionError):  # it is dead, which is seen when its answer is read
            message = self._measure(messages.write)(request, self._names, worker.request_memory)
            worker.connection.send((new_call, message))

    def _read(self, worker: Worker, message: messages.Message) -> Any:
        read = self._measure(messages.read)
        answer = read(message, self._known, worker.answer_memory[0], keep=True)
        worker.answer_memory.reverse()
        return answer

    def _measure(self, function: Callable[..., T]) -> Callable[..., T]:
        return function if self._profile is None else self._profile.measure(MESSAGES, function)

    def _replace(
        self,
        worker: Worker,
        call: Call,
        call_message: messages.Message,
        request: Request,
        retried: set[int],
    ) -> None:
        """Puts a new worker in the place of one that died; it tries the same client once more."""
        worker.process.join(STOP_TIMEOUT_S)
        code = worker.process.exitcode
        died = (
            f"client {request.i}, round {call.t + 1}: its worker process ended "
            f"({describe_exit(code)})"
        )
        worker.request = None
        worker.stop()
        self._workers[self._workers.index(worker)] = new = self._start_worker()
        if request.i in retried:
            raise ClientError(
                f"{died}, twice; expected an answer; look for what kills processes here, such as "
                "too little memory, or set --workers 1"
            )
        retried.add(request.i)
        self.notes.append(f"{died}; computed again")
        self._send(new, call_message, request)


def _stop_all(workers: list[Worker], memory: Any) -> None:
    for worker in workers:
        worker.stop()
    workers.clear()
    if memory is not None:
        memory.close()


def describe_exit(code: int | None) -> str:
    """Says how a process ended."""
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def serve(
    context: RunContext,
    compute: Compute,
    connection: Connection,
    call_memory: Any,
    request_memory: Any,
    answer_memory: list[Any],
) -> None:
    """Answers requests until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run decides when to stop
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _end_with_the_run()
    known = {"method": context.method, "task": context.task}
    call: Call | None = None
    while True:
        try:
            new_call, message = connection.recv()
        except (EOFError, ConnectionError):
            return
        if new_call is not None:
            call = messages.read(new_call, known, call_memory, keep=False)
        assert call is not None
        try:
            request = messages.read(message, known, request_memory, keep=False)
            answer: Any = compute(context, call, request)
        except BaseException as error:  # whatever it is, it is raised in the run's process
            answer = error
            if not isinstance(error, IsthmusError):
                error.add_note("".join(traceback.format_exception(error)))
        connection.send(messages.write(answer, {}, answer_memory[0]))
        answer_memory.reverse()


def _end_with_the_run() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)  # in the middle of a computation whose result nobody will read

    threading.Thread(target=watch, daemon=True).start()
