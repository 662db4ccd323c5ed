"""What the examples show works as it stands, with fewer rounds."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_every_example_runs(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, count = re.subn(r"\brounds=\d+", "rounds=4", path.read_text())
    assert count == 1
    brief = tmp_path / path.name
    brief.write_text(text)
    runpy.run_path(str(brief), run_name="__main__")
    assert "mean top-1 over" in capsys.readouterr().out
