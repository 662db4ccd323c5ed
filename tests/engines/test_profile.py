"""Where the time goes: every second is counted once, whoever spent it."""

import itertools
import time

import pytest

from commands import Isthmus
from golden import check
from isthmus.engines.compiled import Compiled
from isthmus.engines.loop import Loop
from isthmus.engines.profile import (
    COMPILED,
    COMPILING,
    FUNCTION,
    GATHER,
    MESSAGES,
    NETWORK,
    PREPARING,
    STEP,
    Profile,
)
from small import advance, begin, setting


def test_a_second_inside_another_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes one second at every look: each function takes 1 second more than what is in
    it takes. The function (two looks, and 2 x 2 looks in it) takes 5 seconds, the steps 2 x 1."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    profile = Profile(watching=True)
    step = profile.measure(STEP, lambda: None)

    def function() -> None:
        step()
        step()

    profile.measure(FUNCTION, function)()
    assert dict(profile.seconds) == {STEP: 2, FUNCTION: 5}
    assert profile.own_seconds() == {STEP: 2, FUNCTION: 3}


@pytest.mark.parametrize("workers", [1, 2])
def test_an_engine_says_what_its_clients_did(workers: int) -> None:
    engine = Loop(workers)
    spent = engine.watch()
    run = setting("superfed-mm", engine)
    advance(run, begin(run), evaluate=True)
    engine.close()
    seconds = spent()
    assert set(seconds) == {PREPARING, GATHER, NETWORK, STEP, FUNCTION} | (
        {MESSAGES} if workers > 1 else set()
    )
    assert all(part > 0 for part in seconds.values())


def test_compiling_is_told_apart() -> None:
    engine = Loop(compiled=Compiled(8, 2, make_program=lambda graph, _: graph.forward))
    spent = engine.watch()
    run = setting("fedavg", engine)
    advance(run, begin(run), evaluate=False)
    assert set(spent()) == {PREPARING, GATHER, COMPILED, COMPILING, FUNCTION}
    assert all(seconds > 0 for seconds in spent().values())


def test_the_command_shows_it(isthmus: Isthmus) -> None:
    settings = ["--set", "epochs=1", "--workers", "2", "--out", "run"]
    said = isthmus("run", "--data", "digits", "--rounds", "2", "--profile", *settings)
    for words in ("where the time went, mean of 2 rounds", "evaluation", NETWORK, MESSAGES):
        assert words in said.err
    assert "engine: loop in " in said.err
    check(said.err)


def test_a_profile_of_stacked_clients_is_refused(isthmus: Isthmus) -> None:
    check(isthmus("run", "--data", "digits", "--profile", "--set", "engine=stacked").mistake)
