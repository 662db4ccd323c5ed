"""How much of the processor others take."""

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from isthmus.system import machine
from isthmus.system.machine import SLOWEST, Crowd

Seconds = tuple[float, float, float, float, float]


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[Seconds]:
    """What a crowd reads, on two cores: clock, own, waited, children, busy, at first all zero."""
    given: list[Seconds] = [(0.0, 0.0, 0.0, 0.0, 0.0)]

    def read() -> Iterator[machine.Reading]:
        for each in given:
            yield machine.Reading(*each)

    one_by_one = read()
    monkeypatch.setattr(machine, "read_processor", lambda: next(one_by_one))
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(machine.time, "perf_counter", lambda: 1e9)
    return given


def test_a_machine_of_ones_own_slows_nothing_down(readings: list[Seconds]) -> None:
    """Two processes on two cores, and nobody else."""
    readings.append((10.0, 10.0, 0.0, 0.0, 10.0))
    assert Crowd().slow_down(2) == 1.0


def test_one_other_program_on_two_cores_makes_two_of_ours_take_half_as_long_again(
    readings: list[Seconds],
) -> None:
    readings.append((10.0, 9.0, 1.0, 0.0, 19.0))
    assert Crowd().slow_down(2) == pytest.approx(1.5)


def test_who_is_kept_waiting_on_full_cores_has_more_than_it_sees(readings: list[Seconds]) -> None:
    """It had a third of a core of two, so that five others want one as much: six for two cores."""
    readings.append((9.0, 3.0, 6.0, 0.0, 18.0))
    assert Crowd().slow_down(1) == pytest.approx(3.0)


def test_waiting_for_a_disk_or_a_compiler_of_ones_own_is_nobody_elses_work(
    readings: list[Seconds],
) -> None:
    """30 seconds of a compiler beside one other program, and 0.5 on 1.5 of its own kept waiting.

    Taken for waiting, the 30 seconds would have made it twenty times as long.
    """
    readings.append((32.0, 1.5, 0.5, 30.0, 63.5))
    assert Crowd().slow_down(1) == pytest.approx(4 / 3)


def test_no_crowd_is_larger_than_can_be_believed(readings: list[Seconds]) -> None:
    readings.append((1000.0, 1.0, 999.0, 0.0, 2000.0))
    assert Crowd().slow_down(1) == SLOWEST


def test_a_program_that_is_called_is_counted_as_ours() -> None:
    """As the system tells it: a program that works for 0.3 seconds, waited for."""
    before = machine.read_processor()
    work = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", work], check=True)
    after = machine.read_processor()
    assert after.children - before.children >= 0.3
    assert after.clock - before.clock >= 0.25 > after.own - before.own


def test_where_the_system_does_not_tell_who_waits_all_idle_time_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> str:
        raise OSError

    monkeypatch.setattr(machine.Path, "read_text", refuse)
    began = machine.count_waited(time.process_time())
    time.sleep(0.05)
    assert machine.count_waited(time.process_time()) - began >= 0.04
