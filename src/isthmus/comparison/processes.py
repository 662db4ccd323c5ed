"""Processes that do jobs for this one, each on one thread, and end when it ends.

A job is a line of JSON to a process's input, its news are lines from its output; the last news of a
job say `ended` or `failed`. See isthmus.comparison.worker for what is done with a job.
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
News = Mapping[str, Any]

PAUSE = 0.1  # seconds between two looks at whether to stop


class Hand:
    """One process, and the job that it has."""

    def __init__(self, heard: "Queue[tuple[Hand, News]]"):
        self.job: Any = None
        # Its own session, so that Ctrl-C at a terminal reaches this process only.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "isthmus.comparison.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )
        self._ears = Thread(target=self._listen, args=(heard,), daemon=True)
        self._ears.start()

    def tell(self, message: Mapping[str, Any]) -> None:
        """Sends a line; a process that is gone is heard of in another way."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()

    def end(self) -> None:
        """Ends the process at once."""
        self.process.kill()
        self.process.wait()
        self._ears.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(OSError):  # what was not sent is not wanted any more
                pipe.close()

    def _listen(self, heard: "Queue[tuple[Hand, News]]") -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            heard.put((self, json.loads(line)))
        code = self.process.wait()
        heard.put((self, {"failed": f"its process ended with code {code}", "gone": True}))


class Crew(Generic[Job]):
    """Some processes at work; leaving the `with` block ends them all."""

    def __init__(self, size: int):
        self.size = size
        self._hands: list[Hand] = []
        self._heard: Queue[tuple[Hand, News]] = Queue()

    def __enter__(self) -> "Crew[Job]":
        return self

    def __exit__(self, *_: object) -> None:
        while self._hands:
            self._hands.pop().end()

    def work(
        self,
        jobs: Sequence[tuple[Job, Mapping[str, Any]]],
        enough: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[Job, News]]:
        """Yields the news of all jobs as they come, of (whose it is, what to do).

        Where there is `enough`, no other job is begun, and those under way are asked to stop.
        """
        waiting, stopping = deque(jobs), False
        while True:
            if enough() and not stopping:
                stopping = True
                waiting.clear()
                for hand in self._hands:
                    hand.tell({"do": "stop"})
            self._give(waiting)
            if all(hand.job is None for hand in self._hands):
                return
            try:
                hand, news = self._heard.get(timeout=PAUSE)
            except Empty:
                continue
            job = hand.job
            if "ended" in news or "failed" in news:
                hand.job = None
            if "gone" in news:
                self._hands.remove(hand)
                hand.end()
            if job is not None:
                yield job, news

    def _give(self, waiting: "deque[tuple[Job, Mapping[str, Any]]]") -> None:
        while waiting:
            idle = [hand for hand in self._hands if hand.job is None]
            if not idle and len(self._hands) < self.size:
                idle = [Hand(self._heard)]
                self._hands += idle
            if not idle:
                return
            idle[0].job, message = waiting.popleft()
            idle[0].tell(message)
