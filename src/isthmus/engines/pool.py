"""The resident workers of a run: processes of this machine, or actors on a cluster.

A client's result does not depend on who computes it: any number of workers gives the same bits. A
worker that ends is replaced, and its client computed again.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from isthmus.context import Call, Request, RunContext
from isthmus.engines.base import ClientError
from isthmus.engines.profile import MESSAGES, Profile

TIMES = {2: "twice", 3: "for the 3rd time"}


class Answer(NamedTuple):
    """What a worker computed for a client, its notes, and the seconds that it measured."""

    result: Any
    notes: list[str]
    seconds: Mapping[str, float] = {}  # by what they were spent on, where the engine is watched


class Ended(NamedTuple):
    """Stands for the answer of a worker that ended."""

    how: str


class Pool:
    """Workers, and the clients that they compute; a subclass sends, receives and replaces."""

    tries = 2  # workers that may end at one client

    def __init__(self, context: RunContext, profile: Profile):
        self.context = context
        self.notes: list[str] = []
        self.profile = profile
        self.measure = partial(profile.measure, MESSAGES)
        # What both sides have: messages only name it.
        self.known = {"method": context.method, "task": context.task}
        self.names = {id(thing): name for name, thing in self.known.items()}
        self.idle: deque[Any] = deque()
        self.busy: dict[Any, tuple[Any, Request]] = {}  # worker and request, by what to wait for

    def run(self, call: Call, requests: Iterator[Request]) -> Iterator[tuple[int, Any]]:
        """Yield (client, what the function returned), in the order in which they come."""
        message = self.write_call(call)
        again, ends = deque[Request](), Counter[int]()

        def dispatch() -> None:
            while self.idle:
                request = again.popleft() if again else next(requests, None)
                if request is None:
                    return
                worker = self.idle.popleft()
                self.busy[self.send(worker, message, request)] = worker, request

        try:
            dispatch()
            while self.busy or again or not self.idle:
                answers = []
                for key, answer in self.receive():
                    worker, request = self.busy.pop(key)
                    if isinstance(answer, Ended):
                        self.replace(worker)
                        ends[request.i] += 1
                        again.append(request)
                        ended = f"client {request.i}, round {call.t + 1}: {answer.how}"
                        if ends[request.i] == self.tries:
                            raise ClientError(
                                f"{ended}, {TIMES[self.tries]}; find out what kills processes, "
                                "such as too little memory, or set --workers 1"
                            )
                        self.notes.append(f"{ended}; computed again")
                    else:
                        self.idle.append(worker)
                        answers.append((request, worker, answer))
                dispatch()  # workers compute while their answers are read
                for request, worker, answer in answers:
                    yield request.i, self._open(self.read(worker, answer))
        finally:
            self.abandon()  # the workers of a caller that stops early are still computing

    def write_call(self, call: Call) -> Any:
        """Return the message of a call, which is the same for all workers."""

    def send(self, worker: Any, call: Any, request: Request) -> Any:
        """Send a request to a worker; return what to wait for."""

    def receive(self) -> Any:
        """Wait; return what came, as pairs of what was waited for and a message or `Ended`."""

    def read(self, worker: Any, message: Any) -> Any:
        """Return the answer, or the exception, that a worker's message holds."""

    def replace(self, worker: Any) -> None:
        """Start another worker in place of one that ended."""

    def abandon(self) -> None:
        """Leave no worker busy."""

    def close(self) -> None:
        """End all workers."""

    def _open(self, answer: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        self.notes += answer.notes
        self.profile.add(answer.seconds)
        return answer.result
