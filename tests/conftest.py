import sys
from collections.abc import Generator
from pathlib import Path

import pytest

import golden
from commands import Isthmus, Said
from isthmus.cli import app


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-messages",
        action="store_true",
        help="rewrite the expected messages of the tests that run, in tests/messages.toml",
    )


class Writer:
    """Rewrites the expected messages, where processes of pytest-xdist report to."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.ran: set[str] = set()
        self.written: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        key = golden.name_test(report.nodeid)
        self.ran.add(key)
        if report.when == "call" and report.passed:
            self.written[key] = dict(report.user_properties).get("messages", [])

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        entries = golden.read()
        option = self.config.option
        named = option.keyword or option.markexpr or any("::" in each for each in self.config.args)
        whole = self.config.args_source is pytest.Config.ArgsSource.TESTPATHS
        files = {key.partition("::")[0] for key in self.ran}
        gone = {
            key
            for key in entries
            if (whole or key.partition("::")[0] in files) and key not in self.ran
        }
        golden.write(self.written, () if exitstatus or named else gone)


def pytest_configure(config: pytest.Config) -> None:
    if config.option.write_messages and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Writer(config))


@pytest.fixture(scope="session", autouse=True)
def messages(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[str]], Path]:
    """The expected messages of all tests, and the folder of temporary ones."""
    return golden.read(), tmp_path_factory.getbasetemp()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    values = getattr(item, "funcargs", {})
    if "messages" not in values:
        return (yield)
    entries, base = values["messages"]
    key = golden.name_test(item.nodeid)
    writes = item.config.option.write_messages
    running = golden.running = golden.Messages(key, entries.get(key, []), writes=writes)
    if "tmp_path" in values:
        running.paths[str(values["tmp_path"])] = "<tmp>"
    running.paths[str(base)] = "<tmps>"
    result = yield
    running.end()
    item.user_properties.append(("messages", running.checked))
    return result


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
