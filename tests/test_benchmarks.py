"""The benchmarks do the work that they say, and write down their results."""

import doctest
import json
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import evaluation, memory, results, speed, startup
from benchmarks.contenders import CORES, FIRST, write_work
from benchmarks.environments import PeerError
from benchmarks.networks import NETWORKS, load
from benchmarks.peers.work import read
from benchmarks.plain import Plain
from benchmarks.results import Result, compute_ratios, write_json, write_page
from benchmarks.works import MIXING, WORKS, read_data

from isthmus import streams
from isthmus.engines.base import one_thread
from isthmus.models.plain import twocnn, twonn
from isthmus.models.recurrent import stackedlstm
from isthmus.run.loop import advance
from small import federation, network, played, setting

ROUNDS = 2


def in_a_thread(processes: int, context: Any, **begin: Any) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, **begin)


def in_a_process(processes: int, context: Any, **begin: Any) -> ProcessPoolExecutor:
    """One is enough to show what crosses over to it; each takes seconds to import torch."""
    return ProcessPoolExecutor(1, context, **begin)


@pytest.mark.parametrize(
    ("method", "pool"),
    [("fedavg", in_a_thread), (MIXING, in_a_thread), (MIXING, in_a_process)],
    ids=["fedavg", "superfed-mm", "superfed-mm in a process"],
)
def test_the_plain_loop_ends_where_the_engine_does(
    method: Any, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unequal clients, so that batches are ragged; two rounds of up to ten steps.

    The same sums are taken in another order: 2e-6 is about ten roundings of numbers around 1.
    """
    monkeypatch.setattr("benchmarks.plain.ProcessPoolExecutor", pool)
    given = setting(method, lr_decay=1.0)
    progress = played(given, ROUNDS)
    plain = Plain(given, network, processes=2)
    with one_thread(), closing(plain):
        for _ in range(ROUNDS):
            plain.round()
    assert not torch.equal(plain.w, given.task.w0)
    torch.testing.assert_close(plain.w, progress.server.w, rtol=0, atol=2e-6)
    assert plain.own.keys() == progress.own.keys()
    for i, own in plain.own.items():
        torch.testing.assert_close(own, progress.own[i].wl, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "ours", "shape"),
    [("twonn", twonn, (1, 28, 28)), ("twocnn", twocnn, (3, 32, 32))],
)
def test_the_plain_networks_are_ours(name: str, ours: Any, shape: tuple[int, ...]) -> None:
    mine, plain = ours(shape, 10), NETWORKS[name]()
    load(plain, torch.cat([parameter.detach().flatten() for parameter in mine.parameters()]))
    x = torch.rand(3, *shape, generator=torch.Generator().manual_seed(1))
    assert torch.equal(plain(x), mine(x))


def test_the_plain_recurrent_network_is_ours() -> None:
    mine, plain = stackedlstm((80,), 81), NETWORKS["stackedlstm"]()
    load(plain, torch.cat([parameter.detach().flatten() for parameter in mine.parameters()]))
    x = torch.randint(81, (3, 80), generator=torch.Generator().manual_seed(1))
    assert torch.equal(plain(x), mine(x))


@pytest.mark.parametrize(("name", "examples"), [("W1", 480), ("W2s", 400)])
def test_a_client_trains_on_four_fifths_of_its_share(
    name: str, examples: int, tmp_path: Path
) -> None:
    """60,000 and 50,000 images over 100 clients are 600 and 500 each; 80 % are 480 and 400."""
    data = read_data(WORKS[name].experiment(), tmp_path)
    assert len(data) == 100
    assert {data.sizes(i)[:2] for i in range(100)} == {(examples, 0)}
    assert max((data.label_counts(i) > 0).sum() for i in range(100)) == 2


@pytest.mark.parametrize("name", WORKS)
def test_a_work_is_an_experiment_with_a_constant_learning_rate(name: str) -> None:
    experiment = WORKS[name].experiment()
    assert experiment.lr_decay == 1.0
    assert experiment.clients_per_round == {"W3": 30, "W4": 10}.get(name, 5)


def test_a_peer_finds_in_its_folder_what_we_train_on(tmp_path: Path) -> None:
    given = setting("fedavg", lr_decay=1.0)
    write_work(given, "twonn", 7, tmp_path)
    work = read(str(tmp_path))
    assert (work.rounds, work.cohort, work.processes) == (7, 4, CORES)
    assert work.cohorts[0] == list(streams.cohort(given.task.seed, FIRST, 6, 4))
    assert work.sgd == (2, 8, 0.1, 0.9, 1e-4)
    assert torch.equal(work.start, given.task.w0)
    for i in range(6):
        for theirs, ours in zip(work.data(i), federation().split(i, "train"), strict=True):
            assert torch.equal(theirs, ours)


def test_ratios_have_the_names_of_the_table() -> None:
    """Ours takes 2 s: 3 / 2, 2.2 / 2, 5 / 2, 4 / 2, 3.5 / 2; and 2 / 1.6 for our FedAvg."""
    seconds = {
        "ours": 2.0,
        "ours, 1 worker": 3.5,
        "our FedAvg": 1.6,
        "plain loop, 1 process": 3.0,
        "plain loop, 2 processes": 2.2,
        "Flower simulation": 5.0,
        "pfl": 4.0,
    }
    assert compute_ratios(seconds) == {
        "plain loop, 1 process / ours": 1.5,
        "plain loop, 2 processes / ours": 1.1,
        "Flower simulation / ours": 2.5,
        "pfl / ours": 2.0,
        "ours, 1 worker / ours": 1.75,
        "ours / our FedAvg on the same work": 1.25,
    }
    assert doctest.testmod(results).failed == 0


RESULTS = {
    "W1": Result("first", {"ours": 0.5, "pfl": 1.0}, {"pfl / ours": 2.0}, ["a note"]),
    "memory": Result("second", {}, {"peak memory over all processes, GB": 1.25}),
}


def test_the_file_maps_works_to_their_ratios() -> None:
    content = json.loads(write_json(RESULTS, {"cores": 2}, rounds=3))
    assert content["W1"] == {"pfl / ours": 2.0}
    assert content["memory"] == {"peak memory over all processes, GB": 1.25}
    assert content["seconds"]["W1"] == {"ours": 0.5, "pfl": 1.0}
    assert (content["hardware"], content["rounds"], content["notes"]) == (
        {"cores": 2},
        3,
        ["a note"],
    )


def test_the_page_has_the_day_the_machine_and_both_tables() -> None:
    text = write_page(RESULTS, {"cores": 2}, rounds=3, day=date(2026, 11, 5))
    assert "2026-11-05. Medians of 3 rounds" in text
    assert "| cores | 2 |" in text
    assert "| | W1 | memory |\n|---|---:|---:|\n| pfl / ours | 2.00 |  |" in text
    assert "| | W1 |\n|---|---:|\n| ours | 0.50 |\n| pfl | 1.00 |" in text
    assert "- a note" in text


class Counting:
    def __init__(self, fails_at: int = -1):
        self.rounds, self.fails_at, self.closed = 0, fails_at, False

    def round(self) -> None:
        if self.rounds == self.fails_at:
            raise PeerError("it fell over")
        self.rounds += 1

    def close(self) -> None:
        self.closed = True


def test_who_fails_is_left_out_and_everybody_is_closed() -> None:
    """Two rounds count and one warms up: three for who stays, one for who fails in the second."""
    stays, fails = Counting(), Counting(fails_at=1)
    seconds, notes = speed.time_rounds({"stays": stays, "fails": fails}, 2, "work")
    assert (list(seconds), notes) == (["stays"], ["it fell over"])
    assert (stays.rounds, fails.rounds, stays.closed, fails.closed) == (3, 1, True, True)


@pytest.mark.parametrize("arguments", [["W9"], ["W1", "--rounds", "0"]])
def test_a_mistake_is_said_before_anything_is_timed(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        speed.main(arguments)
    assert "expected" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").is_file(), reason="needs Linux's /proc")
def test_memory_counts_what_a_process_holds() -> None:
    """A process that holds next to nothing starts one that holds 50 million bytes."""
    holds = "held = b'1' * 50_000_000; print(flush=True); input()"
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {holds!r}])"
    command = [sys.executable, "-c", starts]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        held = memory.add_up(process.pid)
    assert 50e6 < held < 150e6


def test_all_clients_have_mixed_before_evaluations_are_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two rounds of four clients count or warm up; the six clients have all mixed before."""
    given, seen = setting(MIXING), []

    def watched(setting: Any, progress: Any, evaluate: bool) -> Any:
        step = advance(setting, progress, evaluate)
        seen.append((len(step.changed), evaluate))
        return step

    monkeypatch.setattr(evaluation, "advance", watched)
    training, evaluating = evaluation.time_both(given, rounds=1)
    assert training > 0
    assert evaluating > 0
    assert seen == [(6, False), (4, True), (4, True)]


def test_start_up_is_timed_until_a_round_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ("--data", "synthetic", "--set", "samples=600")  # too few steps to compile them
    monkeypatch.setattr(startup, "NOISE", few)
    took = startup.time_first_round(tmp_path, tmp_path / "run")
    assert took > 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "stopped"
