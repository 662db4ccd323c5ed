"""Trackers: what was written is read back, and is what the records say."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from commands import Isthmus
from golden import check
from isthmus import Experiment, federate, resume
from isthmus.errors import UnwritableError
from isthmus.run.loop import RoundResult
from isthmus.tracking import TRACKERS, callback
from isthmus.tracking.mlflow import write_run
from isthmus.tracking.tensorboard import write_events
from small import read_rows

TINY = [
    *("--method", "fedavg", "--data", "synthetic", "--rounds", "4", "--seed", "4"),
    *("--set", "samples=120", "--set", "clients=4", "--set", "clients_per_round=2"),
    *("--set", "epochs=1", "--set", "hidden=8", "--set", "eval_every=2"),
]
MEAN = "mean over clients"
with_tensorboard = pytest.mark.skipif(
    find_spec("tensorboard") is None, reason="tensorboard is not installed"
)
with_mlflow = pytest.mark.skipif(find_spec("mlflow") is None, reason="MLflow is not installed")


def experiment(**changes: Any) -> Experiment:
    given = {
        "method": "fedavg",
        "data": {"name": "synthetic", "samples": 120},
        "clients": 4,
        "clients_per_round": 2,
        "epochs": 1,
        "rounds": 2,
        "eval_every": 2,
        "model": {"name": "mlp", "hidden": 8},
    }
    return Experiment(**given | changes)


def mean(run: Path, round: int, model: str, split: str, metric: str) -> float:
    """A mean over clients, from the records."""
    wanted = {"round": str(round), "model": model, "split": split}
    found = [
        float(row[metric])
        for row in read_rows(run / "clients.csv")
        if row["client"] != "server" and all(row[key] == wanted[key] for key in wanted)
    ]
    assert len(found) == 4
    return sum(found) / len(found)


def same_as_recorded(run: Path, curves: dict[str, dict[int, float]]) -> None:
    """Compares what a tracker holds, by tag and round, with the tables.

    Tables have eight digits and TensorBoard has single precision: seven digits are the same.
    """
    for tag, model, split, metric in (
        (f"personal/test/top1 {MEAN}", "personal", "test", "top1"),
        (f"personal/validation/loss {MEAN}", "personal", "validation", "loss"),
        (f"shared/test/ece {MEAN}", "shared", "test", "ece"),
    ):
        wanted = {round: mean(run, round, model, split, metric) for round in (2, 4)}
        assert curves[tag] == pytest.approx(wanted, rel=1e-6)
    server = [row for row in read_rows(run / "clients.csv") if row["client"] == "server"]
    wanted = {int(row["round"]): float(row["loss"]) for row in server}
    assert curves["shared/server test set/loss"] == pytest.approx(wanted, rel=1e-6)
    for tag, column in (
        ("cost/up bytes of the round", "up_bytes"),
        ("cost/down bytes of the round", "down_bytes"),
        ("cost/train seconds of the round", "train_seconds"),
    ):
        wanted = {int(row["round"]): float(row[column]) for row in read_rows(run / "rounds.csv")}
        assert sorted(wanted) == [1, 2, 3, 4]
        # Seconds are written with six decimals.
        assert curves[tag] == pytest.approx(wanted, rel=1e-6, abs=1e-6)


def test_a_tag_says_which_number_it_is() -> None:
    """Also that a personal model was chosen on test data, and that calibration is per batch."""
    plain = experiment(method="superfed-mm")
    names = list(callback.scalars(plain, federate(plain).rounds[-1]))
    assert f"personal/test/top1 {MEAN}" in names
    assert not any("path" in name for name in names)
    chosen = experiment(method="superfed-mm", selection="oracle", calibration="per-batch")
    names = list(callback.scalars(chosen, federate(chosen).rounds[-1]))
    assert f"personal chosen on test data/test/top1 {MEAN}" in names
    assert f"personal chosen on test data/test/ece per batch {MEAN}" in names
    assert f"shared/test/top1 {MEAN}" in names
    assert not any(name.startswith("personal/") for name in names)


def test_a_round_that_was_not_evaluated_has_its_cost_only() -> None:
    first, second = federate(experiment()).rounds
    costs = set(callback.scalars(experiment(), first))
    assert {name.split("/")[0] for name in costs} == {"cost", "round"}
    assert costs < set(callback.scalars(experiment(), second))


def test_settings_are_those_of_the_experiment() -> None:
    listed = callback.settings(experiment(lr=0.25))
    assert (listed["lr"], listed["method.name"], listed["data.samples"]) == (0.25, "fedavg", 120)
    assert all(isinstance(value, bool | int | float | str) for value in listed.values())


def read_events(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    return read


@with_tensorboard
def test_tensorboard_holds_what_the_records_say(isthmus: Isthmus) -> None:
    said = isthmus("run", *TINY, "--out", "run", "--track", "tensorboard")
    assert said.code == 0, said.err
    read = read_events(Path("run/tensorboard"))
    tags = read.Tags()["scalars"]
    curves = {tag: {event.step: event.value for event in read.Scalars(tag)} for tag in tags}
    same_as_recorded(Path("run"), curves)


@with_tensorboard
def test_tensorboard_shows_the_settings_beside_the_figures(isthmus: Isthmus) -> None:
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    isthmus("run", *TINY, "--set", "lr=0.25", "--out", "run", "--track", "tensorboard")
    found = read_events(Path("run/tensorboard")).summary_metadata
    data = {tag: HParamsPluginData() for tag in found if tag.startswith("_hparams_/")}
    for tag, message in data.items():
        message.ParseFromString(found[tag].plugin_data.content)
    hparams = data["_hparams_/session_start_info"].session_start_info.hparams
    assert hparams["lr"].number_value == 0.25
    assert hparams["method.name"].string_value == "fedavg"
    metrics = [info.name.tag for info in data["_hparams_/experiment"].experiment.metric_infos]
    assert f"personal/test/top1 {MEAN}" in metrics


@with_tensorboard
def test_tensorboard_goes_on_with_a_run_that_was_stopped(tmp_path: Path) -> None:
    longer, events = experiment(rounds=4, eval_every=1), tmp_path / "events"
    for begun in (False, True):
        with write_events(events, longer) as write:

            def watch(done: RoundResult, write: callback.Write = write) -> bool:
                write(done)
                return done.cost.round == 2

            if begun:
                resume(tmp_path / "run", watch=watch)
            else:
                federate(longer, out=tmp_path / "run", watch=watch)
    scalars = read_events(events).Scalars(f"personal/test/top1 {MEAN}")
    assert [event.step for event in scalars] == [1, 2, 3, 4]


# MLflow, and the packages it needs, warn of things to come in one another.
@pytest.mark.slow
@with_mlflow
@pytest.mark.filterwarnings("ignore")
class TestMLflow:
    @pytest.fixture(scope="class")
    def place(self, tmp_path_factory: pytest.TempPathFactory) -> str:
        """One database for all: to make one takes seconds."""
        return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"

    @pytest.fixture(autouse=True)
    def _local(self, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", place)
        monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)

    def curves(self, run: Path) -> dict[str, dict[int, float]]:
        from mlflow.tracking import MlflowClient

        client, name = MlflowClient(), (run / "mlflow.txt").read_text().strip()
        return {
            key: {point.step: point.value for point in client.get_metric_history(name, key)}
            for key in client.get_run(name).data.metrics
        }

    def test_it_holds_what_the_records_say_also_of_a_run_that_goes_on(
        self, isthmus: Isthmus
    ) -> None:
        from mlflow.tracking import MlflowClient

        said = isthmus("run", *TINY, "--rounds", "2", "--out", "run", "--track", "mlflow")
        assert said.code == 0, said.err
        name = Path("run/mlflow.txt").read_text().strip()
        said = isthmus("resume", "run", "--rounds", "4", "--track", "mlflow")
        assert said.code == 0, said.err
        assert Path("run/mlflow.txt").read_text().strip() == name
        same_as_recorded(Path("run"), self.curves(Path("run")))
        client = MlflowClient()
        kept = client.get_run(name)
        assert (kept.info.run_name, kept.info.status) == ("run", "FINISHED")
        assert kept.data.params["method.name"] == "fedavg"
        assert client.get_experiment(kept.info.experiment_id).name == "isthmus"

    def test_a_run_that_fails_is_marked(self, tmp_path: Path) -> None:
        from mlflow.tracking import MlflowClient

        def broken() -> None:
            with write_run(experiment(), keep=tmp_path / "mlflow.txt"):
                raise RuntimeError("broken")

        with pytest.raises(RuntimeError, match="broken"):
            broken()
        name = (tmp_path / "mlflow.txt").read_text().strip()
        assert MlflowClient().get_run(name).info.status == "FAILED"

    def test_a_run_that_mlflow_does_not_know_is_one_line(self, isthmus: Isthmus) -> None:
        assert isthmus("run", *TINY, "--rounds", "2", "--out", "run").code == 0
        Path("run/mlflow.txt").write_text("0" * 32 + "\n")
        check(isthmus("resume", "run", "--rounds", "4", "--track", "mlflow").mistake)
        said = isthmus("resume", "run", "--rounds", "4")
        assert said.code == 0, said.err

    def test_nothing_goes_over_the_network(self, tmp_path: Path, place: str) -> None:
        """In a process of its own, since MLflow's reports are off in tests anyhow."""
        code = (
            "import socket, sys, time\n"
            "asked = []\n"
            "def refused(*arguments, **named):\n"
            "    asked.append(arguments[:2])\n"
            "    raise OSError('no network')\n"
            "socket.getaddrinfo = socket.socket.connect = refused\n"
            f"sys.argv[1:] = {['run', *TINY, '--out', 'run', '--track', 'mlflow']}\n"
            "import isthmus.cli.app as cli\n"
            "cli.main()\n"
            "time.sleep(0.5)\n"
            "print('asked', asked)\n"
        )
        left_out = ("PYTEST", "MLFLOW", "CI")
        plain = {key: v for key, v in os.environ.items() if not key.startswith(left_out)}
        plain["MLFLOW_TRACKING_URI"] = place
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=plain, capture_output=True, text=True
        )
        assert done.stdout.splitlines()[-1] == "asked []", done.stderr


@pytest.mark.parametrize("command", ["run", "resume"])
def test_a_missing_extra_is_the_command_to_type(
    isthmus: Isthmus, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    words = ["run", *TINY, "--out", "run"]
    if command == "resume":
        assert isthmus(*words).code == 0
        words = ["resume", "run"]
    for name in ("tensorboard", "mlflow"):
        with monkeypatch.context() as patch:
            patch.setattr(callback, "find_spec", lambda module: None)
            line = isthmus(*words, "--track", name).mistake
        check(line)
    if command == "run":
        assert not Path("run").exists(), "a mistake leaves nothing behind"
    else:
        assert json.loads(Path("run/summary.json").read_text())["status"] == "finished"


def test_an_unknown_tracker_is_one_line(isthmus: Isthmus) -> None:
    check(isthmus("run", *TINY, "--out", "run", "--track", "tensorbord").mistake)
    assert not Path("run").exists()


@pytest.mark.parametrize("command", ["run", "resume"])
def test_the_help_names_every_tracker(isthmus: Isthmus, command: str) -> None:
    words = isthmus(command, "--help").out
    assert all(name in words for name in TRACKERS)


@with_tensorboard
def test_events_that_cannot_be_written_are_one_line(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("in the way")
    with (
        pytest.raises(UnwritableError, match=f"{place} cannot be written"),
        write_events(place, experiment()),
    ):
        pass
    assert place.read_text() == "in the way"


@with_mlflow
def test_a_database_that_cannot_be_written_is_one_line_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow itself tries for two minutes."""
    place = tmp_path / "nowhere" / "mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place}")
    with (
        pytest.raises(UnwritableError, match=f"{place} cannot be written"),
        write_run(experiment()),
    ):
        pass
