"""Five runs on one federation, written once."""

from collections.abc import Callable
from pathlib import Path

import pytest

import runs as fixture
from isthmus.run.record import RecordedRun, read


@pytest.fixture(scope="session")
def five(tmp_path_factory: pytest.TempPathFactory) -> list[RecordedRun]:
    directory = tmp_path_factory.mktemp("runs")
    return [read(fixture.write(directory / method, method)) for method in fixture.METHODS]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(method: str, name: str | None = None, **changes: object) -> Path:
        return fixture.write(tmp_path / (name or method), method, **changes)  # type: ignore[arg-type]

    return write


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., Path]:
    """Writes a run of four clients whose top-1 at round 2 is given, by hand, as an older version
    did: without Brier scores, bins and variances. `earlier` is their top-1 at round 1."""

    def tiny(method: str, top1: list[float], name: str | None = None, **changes: object) -> Path:
        directory = tmp_path / (name or method)
        directory.mkdir()
        at = changes.pop("at", "")
        earlier = changes.pop("earlier", None)
        digest = changes.pop("federation", "f00d")
        experiment = fixture.toml(method, clients=4, rounds=2, **changes)
        (directory / "experiment.toml").write_text(experiment)
        clients = [f"{i},8,2,10,{10 + i} {10 - i}" for i in range(4)]
        header = "client,train,validation,test,labels"
        text = fixture.commented(experiment, header, clients)
        (directory / "federation.csv").write_text(text)
        header = "round,lr,asked,answered,down_bytes,up_bytes,train_seconds,evaluate_seconds"
        rows = ["1,0.1,4,4,1000,500,1.5,0", "2,0.1,4,4,1000,500,1.5,0.5"]
        (directory / "rounds.csv").write_text(fixture.commented(experiment, header, rows))
        rows = [
            f"{t},{i},personal,{at},{split},10,{value},1,{1 - value:.4f},0.1,0.2"
            for t, values in ((1, earlier or []), (2, top1))
            for i, value in enumerate(values)
            for split in ("validation", "test")
        ]
        if method != "local":
            rows += [f"2,{i},shared,,test,10,0.5,1,0.7,0.1,0.2" for i in range(4)]
            rows.append("2,server,shared,,test,100,0.55,1,0.7,0.1,0.2")
        text = fixture.commented(experiment, fixture.OLDER, rows)
        (directory / "clients.csv").write_text(text)
        (directory / "summary.json").write_text(
            f'{{"status": "finished", "rounds": 2, "digest": "beef", "federation": "{digest}"}}'
        )
        return directory

    return tiny
