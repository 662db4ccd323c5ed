"""A real browser, where there is one."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")


@contextmanager
def chromium(profile: Path, width: int = 1400) -> Iterator[Any]:
    """Opens a browser that logs what it does, or skips the test where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium or chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def complaints(driver: Any) -> list[str]:
    """Lists what the page wrote to the console as an error."""
    return [line["message"] for line in driver.get_log("browser") if line["level"] == "SEVERE"]


def requested(driver: Any) -> set[str]:
    """Lists the addresses that a page in a file asked for, besides itself and data in itself."""
    entries = [json.loads(line["message"])["message"] for line in driver.get_log("performance")]
    sent = [e["params"] for e in entries if e["method"] == "Network.requestWillBeSent"]
    mine = [each for each in sent if each["documentURL"].startswith("file:")]
    assert mine  # at least the page itself
    urls = {
        each["request"]["url"] for each in mine if each["request"]["url"] != each["documentURL"]
    }
    return {url for url in urls if not url.startswith(("data:", "blob:"))}


class Tags(HTMLParser):
    """Collects start tags and text, and checks that what is opened is closed in order."""

    VOID = frozenset({"meta", "br", "input", "rect", "circle", "path"})

    def __init__(self) -> None:
        HTMLParser.__init__(self)
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(text: str) -> Tags:
    tags = Tags()
    tags.feed(text)
    tags.close()
    assert tags.open == []
    return tags


def contrast(first: str, second: str) -> float:
    """Computes the contrast of two colours, #rrggbb or rgb(...), as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        digits = colour[4:-1].split(",") if "(" in colour else None
        parts = digits or [str(int(colour[i : i + 2], 16)) for i in (1, 3, 5)]
        shares = [int(part) / 255 for part in parts]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in shares]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted([luminance(first), luminance(second)])
    return (high + 0.05) / (low + 0.05)
