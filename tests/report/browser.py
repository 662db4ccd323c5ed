"""A real browser, where there is one."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
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
