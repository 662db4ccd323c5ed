import sys
from pathlib import Path

import pytest

from commands import Isthmus, Said
from isthmus.cli import app


@pytest.fixture
def isthmus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Isthmus:
    """Runs the program in an empty directory, in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ISTHMUS_DATA_ROOT", raising=False)

    def isthmus(*arguments: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["isthmus", *(str(word) for word in arguments)])
        capsys.readouterr()
        code = 0
        try:
            app.main()
        except SystemExit as end:
            code = int(end.code or 0)
        return Said(code, *capsys.readouterr())

    return isthmus
