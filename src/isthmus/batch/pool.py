"""Processes that do jobs for this one, each on one thread, and end when it ends.

A job is a line of JSON to a process's input, its messages are lines from its output; the last
message of a job says `ended` or `failed`. See isthmus.batch.worker for what is done with a
job. The pool of isthmus.engines.workers is another thing: its processes compute clients of one run
and share that run's memory, while each of these is a program of its own that owns a whole run.
"""

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from queue import Empty, Queue
from threading import Thread
from typing import Any, Generic, TypeVar

Job = TypeVar("Job")
JobMessage = Mapping[str, Any]

PAUSE = 0.1  # seconds between two looks at whether to stop


class JobProcess:
    """One process, and the job that it has."""

    def __init__(self, inbox: "Queue[tuple[JobProcess, JobMessage]]"):
        self.job: Any = None
        # Its own session, so that Ctrl-C at a terminal reaches this process only.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "isthmus.batch.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )
        self._reader = Thread(target=self._read, args=(inbox,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its number in the system."""
        return self._process.pid

    def send(self, message: JobMessage) -> None:
        """Send a line; that a process is gone is seen where its output is read."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):  # nothing more is sent
                pipe.close()

    def _read(self, inbox: "Queue[tuple[JobProcess, JobMessage]]") -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            inbox.put((self, json.loads(line)))
        code = self._process.wait()
        inbox.put((self, {"failed": f"its process ended with code {code}", "gone": True}))


class JobPool(Generic[Job]):
    """At most `size` processes, started as they are needed; leaving the `with` block ends them."""

    def __init__(self, size: int):
        self.size = size
        self.processes: list[JobProcess] = []
        self._inbox: Queue[tuple[JobProcess, JobMessage]] = Queue()

    def __enter__(self) -> "JobPool[Job]":
        return self

    def __exit__(self, *_: object) -> None:
        while self.processes:
            self.processes.pop().close()

    def run(
        self,
        jobs: Sequence[tuple[Job, JobMessage]],
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[Job, JobMessage]]:
        """Yield the messages of all jobs as they come, of (whose it is, what to do).

        Once `stop` says so, no other job is begun, and those under way are asked to stop.
        """
        waiting, stopping = deque(jobs), False
        while True:
            if stop() and not stopping:
                stopping = True
                waiting.clear()
                for process in self.processes:
                    process.send({"do": "stop"})
            self._assign(waiting)
            if all(process.job is None for process in self.processes):
                return
            try:
                process, message = self._inbox.get(timeout=PAUSE)
            except Empty:
                continue
            job = process.job
            if "ended" in message or "failed" in message:
                process.job = None
            if "gone" in message:
                self.processes.remove(process)
                process.close()
            if job is not None:
                yield job, message

    def _assign(self, waiting: "deque[tuple[Job, JobMessage]]") -> None:
        while waiting:
            idle = [process for process in self.processes if process.job is None]
            if not idle and len(self.processes) < self.size:
                idle = [JobProcess(self._inbox)]
                self.processes += idle
            if not idle:
                return
            idle[0].job, message = waiting.popleft()
            idle[0].send(message)
