"""A published site in a headless Chromium that can reach this machine only.

    with serve(html_dir) as url, chromium(tmp_path) as driver:
        site = Site(driver, url)
        site.goto("#/regressions")

Everything the page asks for and complains about is recorded, so a test can say that there was nothing.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import shutil
import time
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

import pytest

from tests.http_servers import QuietServer, listening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

REQUIRED = "HARNESS_REQUIRE_BROWSER"
LOCAL = "127.0.0.1"
NETWORK = frozenset({"http", "https", "ws", "wss", "ftp"})
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # Chromium refuses its sandbox to root, and root is who runs tests in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    # With a process for each site a visit takes half as long again: one is started to leave the blank page.
    "--disable-features=IsolateOrigins,site-per-process,BackForwardCache,OptimizationHints,Translate",
    "--disable-site-isolation-trials",
    f"--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE {LOCAL}",
)


class Site:
    """An open site: its address, its requests and its errors."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver = driver
        self.url = url
        self._console: list[str] = []
        self._requests: list[str] = []
        # What the browser did before, such as filling its own start page, is not this site's doing.
        if not self.driver.current_url.startswith(f"{url}/"):
            self.driver.get("about:blank")
        for log in ("browser", "performance"):
            self.driver.get_log(log)

    def goto(self, page: str = "", *, width: int = 1280, height: int = 900) -> None:
        """Open a page of the site afresh, such as "#/regressions", and wait until it has what it asks for."""
        # Not the window's size, which Chromium does not let shrink to that of a phone.
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        wanted = f"{self.url}/{page.lstrip('/')}"
        # A change of the part after # alone would not load the page again.
        if self.driver.current_url.partition("#")[0] == wanted.partition("#")[0]:
            self.driver.get("about:blank")
        self.driver.get(wanted)
        self.wait(lambda: self.script("return document.readyState") == "complete", "the page to load")
        idle = "return typeof jQuery === 'undefined' || jQuery.active === 0"
        self.wait(lambda: self.script(idle), "the page's requests to finish")

    def script(self, source: str, *arguments: object) -> Any:
        return self.driver.execute_script(source, *arguments)

    def text(self, selector: str) -> str:
        """Return the text that a reader sees in the first element of the selector; empty if no element
        matches.
        """
        return str(self.script("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def count(self, selector: str) -> int:
        """Count the elements of the selector that a reader can see."""
        visible = "return [...document.querySelectorAll(arguments[0])].filter(e => e.offsetParent).length"
        return int(self.script(visible, selector))

    def painted(self, selector: str) -> bool:
        """Return True if a canvas shows colour. asv draws frames, grids and labels in grey."""
        return bool(
            self.script(
                """const canvas = document.querySelector(arguments[0]);
                if (!canvas || !canvas.width || !canvas.height) return false;
                const image = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
                for (let i = 0; i < image.length; i += 4)
                    if (image[i + 3] > 0 && Math.abs(image[i] - image[i + 2]) > 40) return true;
                return false;""",
                selector,
            )
        )

    def wait(self, condition: Callable[[], object], what: str, timeout_s: float = 20) -> None:
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                pytest.fail(f"waited {timeout_s:g} s for {what}; console: {self.console_errors()}")
            time.sleep(0.05)

    def console_errors(self) -> list[str]:
        """Warnings count: a page that loads well has none."""
        self._console += [
            f"{entry['level']}: {entry['message']}"
            for entry in self.driver.get_log("browser")
            if entry["level"] in {"WARNING", "SEVERE"}
        ]
        return list(self._console)

    def requests(self) -> list[str]:
        """Every URL that any page opened here has asked for."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self._requests.append(message["params"]["request"]["url"])
            elif message["method"] == "Network.webSocketCreated":
                self._requests.append(message["params"]["url"])
        return list(self._requests)

    def external_requests(self) -> list[str]:
        """Return the requests for other hosts. The browser could not send them."""
        here = urlsplit(self.url).netloc
        urls = ((url, urlsplit(url)) for url in self.requests())
        return [url for url, parts in urls if parts.scheme in NETWORK and parts.netloc != here]

    def screenshot(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(path))


@contextlib.contextmanager
def serve(html_dir: Path) -> Iterator[str]:
    """The folder behind http on a free port of this machine."""
    handler = functools.partial(_QuietHandler, directory=str(html_dir))
    with listening(QuietServer((LOCAL, 0), handler)) as url:
        yield url


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A selenium driver on a fresh profile; the test is skipped, or fails on request, where there is none."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    chromedriver = shutil.which("chromedriver")
    if browser is None or chromedriver is None:
        _unavailable("chromium and chromedriver are not installed (Debian: chromium, chromium-driver)")
    try:
        from selenium import webdriver
    except ImportError:
        _unavailable("selenium is not installed (pip install selenium)")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # A named driver keeps selenium from looking for one on the internet.
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=chromedriver))
    try:
        yield driver
    finally:
        driver.quit()


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: the test reports what matters."""


def _unavailable(reason: str) -> NoReturn:
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{REQUIRED}=1, but {reason}")
    pytest.skip(reason)
