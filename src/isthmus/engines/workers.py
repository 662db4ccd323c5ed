"""Resident processes that run client functions, one thread each.

Where the system can fork, workers begin with all that the run has in memory, data included, and
parameters travel through memory that both sides see. Elsewhere they start empty and are sent
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
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from isthmus.context import Call, Request, RunContext
from isthmus.engines import messages
from isthmus.engines.base import SMALL_PARAMETERS, Plan
from isthmus.engines.pool import Answer, Ended, Pool
from isthmus.engines.profile import Profile
from isthmus.errors import IsthmusError
from isthmus.system.machine import count_cores

Compute = Callable[[RunContext, Call, Request], Answer]

BRIEF_STEPS = 500  # steps of a small network, which take about as long as it takes to start workers
START_METHOD = "fork" if sys.platform == "linux" else "spawn"  # elsewhere forking is not safe


def choose_workers(plan: Plan) -> int:
    """Choose one process for each core; one, where each would run the script of the run again.

    One, too, where the run is over before others begin. A client that is evaluated counts as a
    step of every round.
    """
    steps = plan.rounds * (plan.steps_per_round + len(plan.sizes))
    brief = plan.parameters <= SMALL_PARAMETERS and steps <= BRIEF_STEPS
    return 1 if brief or START_METHOD != "fork" else count_cores()


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
        self.call: messages.Message | None = None  # the last call that it was sent

    def stop(self) -> None:
        """End the process, whatever it computes; it holds nothing that others need."""
        self.connection.close()
        self.process.kill()
        self.process.join()
        for memory in (self.request_memory, *self.answer_memory):
            if memory is not None:
                memory.close()


class ProcessPool(Pool):
    """The worker processes of one run."""

    def __init__(
        self,
        context: RunContext,
        count: int,
        compute: Compute,
        start: str,
        profile: Profile,
    ):
        Pool.__init__(self, context, profile)
        self._compute = compute
        self._start = start
        self._memory = messages.allocate_shared() if start == "fork" else None
        self._workers: list[Worker] = []
        for _ in range(count):
            self._start_worker()
        self._stop_all = weakref.finalize(self, _stop_all, self._workers, self._memory)

    def write_call(self, call: Call) -> messages.Message:
        """Return the message of a call, whose tensors lie in memory that all workers see."""
        return self.measure(messages.write)(call, self.names, self._memory)

    def send(self, worker: Worker, call: messages.Message, request: Request) -> Any:
        """Send a request, after the call that it belongs to if the worker has not got that."""
        new_call = call if worker.call is not call else None
        worker.call = call
        with suppress(ConnectionError):  # it is dead, which is seen when its answer is read
            message = self.measure(messages.write)(request, self.names, worker.request_memory)
            worker.connection.send((new_call, message))
        return worker.connection

    def receive(self) -> Iterator[tuple[Any, Any]]:
        """Wait for answers, or for the end of those that owe one."""
        ready: list[Any] = wait([*self.busy])
        for connection in ready:
            worker, _ = self.busy[connection]
            try:
                yield connection, connection.recv()
            except (EOFError, ConnectionError):
                worker.process.join()
                how = describe_exit(worker.process.exitcode)
                yield connection, Ended(f"its worker process ended ({how})")

    def read(self, worker: Worker, message: messages.Message) -> Any:
        """Return the answer, or the exception, that a worker's message holds."""
        read = self.measure(messages.read)
        answer = read(message, self.known, worker.answer_memory[0], keep=True)
        worker.answer_memory.reverse()
        return answer

    def replace(self, worker: Worker) -> None:
        """Start another process in place of one that ended, or should."""
        worker.stop()
        self._workers.remove(worker)
        self._start_worker()

    def abandon(self) -> None:
        """Replace workers that are computing: no message would stop them."""
        for worker, _ in self.busy.values():
            self.replace(worker)
        self.busy.clear()

    def close(self) -> None:
        """End all workers; so does the garbage collector when it takes the pool."""
        self._stop_all()

    def _start_worker(self) -> None:
        worker = Worker(self.context, self._compute, self._memory, self._start)
        self._workers.append(worker)
        self.idle.append(worker)


def _stop_all(workers: list[Worker], memory: Any) -> None:
    for worker in workers:
        worker.stop()
    workers.clear()
    if memory is not None:
        memory.close()


def describe_exit(code: int | None) -> str:
    """Describe how a process ended."""
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
    """Answer requests until the connection is closed."""
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
        os._exit(1)  # in the middle of a computation whose result will not be read

    threading.Thread(target=watch, daemon=True).start()
