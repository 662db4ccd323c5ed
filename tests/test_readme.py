"""What the README and the pages show works as it stands, with fewer rounds."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from isthmus.cli.app import main

ROOT = Path(__file__).parents[1]
METHODS = sorted(path for path in (ROOT / "docs" / "methods").glob("*.md") if path.stem != "index")
PAGES = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            "runs",
            "experiments",
            "partitions",
            "fetching",
            "data",
            "noise",
            "tracking",
            "statistics",
            "compare",
        )
    ),
    *METHODS,
]
PATIENTS = "age,sex,hospital,outcome\n" + "".join(
    f"{20 + i % 61},{'fm'[i % 2]},{'ABC'[i % 3]},{'yes' if i % 61 > 30 else 'no'}\n"
    for i in range(120)
)


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), flags=re.DOTALL)


def commands(path: Path) -> list[list[str]]:
    """The page's isthmus commands, but those that need files which are not bundled."""
    lines = "\n".join(blocks(path, "sh")).replace("\\\n", " ").splitlines()
    found = [shlex.split(line, comments=True) for line in lines if line.startswith("isthmus ")]
    return [
        words[1:] for words in found if "mnist" not in words and not any(".npz" in w for w in words)
    ]


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_commands_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("patients.csv").write_text(PATIENTS)
    if page.stem == "tracking":
        pytest.importorskip("tensorboard")
    assert len(commands(page)) >= (1 if page in METHODS else 2)
    for words in commands(page):
        if words[0] in ("run", "compare"):
            words = [*words, "--rounds", "2", "--set", "epochs=1"]
        if words[0] == "compare" and "--jobs" not in words:
            words += ["--jobs", "1"]
        monkeypatch.setattr(sys, "argv", ["isthmus", *words])
        main()


def test_the_python_of_the_page_on_own_data_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks(ROOT / "docs" / "data.md", "python")
    exec(block, {})
    assert "('Aalen', 'Bergen', 'Cork') [" in capsys.readouterr().out


def test_the_python_of_the_page_on_trackers_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tensorboard, lines = (
        block.replace("rounds=20", "rounds=2")
        for block in blocks(ROOT / "docs" / "tracking.md", "python")
    )
    exec(lines, {})
    rounds = [json.loads(line) for line in Path("figures.jsonl").read_text().splitlines()]
    assert [round["round"] for round in rounds] == [1, 2]
    assert 0 < rounds[1]["personal/test/top1 mean over clients"] < 1
    pytest.importorskip("tensorboard")
    exec(tensorboard, {})
    assert list(Path("events/fifth").iterdir())


def test_the_python_of_the_page_on_runs_shows_two_methods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = [each for each in blocks(ROOT / "docs" / "runs.md", "python") if "Board" in each]
    exec(block.replace("rounds=20", "rounds=2").replace("methods, 20", "methods, 2"), {})
    said = capsys.readouterr().err
    assert "local: begins\nlocal: done: personal " in said
    assert "; 2 runs: 1 done, 1 waiting; " in said
    assert "fedavg: done: personal " in said
    assert "; 2 runs: 2 done; " in said


def test_the_python_of_the_readme_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(ROOT / "README.md", "python")
    exec(block.replace("rounds=40", "rounds=2"), {})
    assert "[" in capsys.readouterr().out
