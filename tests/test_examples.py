import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_every_example_runs(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from isthmus.config.registry import options
    from isthmus.methods import METHODS

    monkeypatch.setattr("isthmus.methods.METHODS", METHODS)
    before = dict(METHODS)
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:  # an example may name a method of its own
        METHODS.clear()
        METHODS.update(before)
        options.cache_clear()
    assert "mean top-1 over" in capsys.readouterr().out
