# SPDX-License-Identifier: GPL-2.0-only
"""Chromium without a window, told by its DevTools protocol over a pipe what to show, for the tests of what the report
looks like. It has no network where it can be kept from it, and what it asks for is told.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def program() -> str | None:
    """The browser; None if there is none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@dataclass
class Page:
    """What is shown: `requests` has every address that was asked for, `errors` what the console was told."""

    browser: Browser
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.browser.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """All of the page as PNG."""
        answer = self.browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self, path: Path) -> None:
        """The page as it is printed on A4."""
        answer = self.browser.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False)
        path.write_bytes(base64.b64decode(answer["data"]))


class Browser:
    """One process with one page; to be closed."""

    def __init__(self, profile: Path) -> None:
        found = program()
        assert found
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # Above the descriptors 3 and 4, at which the browser looks for them.
        above = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (theirs_in, theirs_out)]
        alone = ["unshare", "--net"]
        if subprocess.run([*alone, "true"], stderr=subprocess.DEVNULL).returncode:
            alone = []
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{above[0]} 4>&{above[1]}', "bash", "timeout", "-k", "5", "300", *alone, found]
            + ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]
            + ["--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=above,
        )
        for each in (theirs_in, theirs_out, *above):
            os.close(each)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._session: str | None = None
        self._page = Page(self)
        self._loaded = False
        (target,) = [
            each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page"
        ]
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def show(self, path: Path, width: int = 1000, dark: bool = False, media: str = "") -> Page:
        """The file, in a window of this width, once it is loaded."""
        self._page, self._loaded = Page(self), False
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._receive()
        return self._page

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """What the browser answers."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            received = self._receive()
            if received.get("id") == number:
                assert "error" not in received, (method, received["error"])
                return received["result"]

    def close(self) -> None:
        """End it."""
        self._session = None
        self.call("Browser.close")
        self._process.wait(timeout=20)
        os.close(self._out)
        os.close(self._in)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._in, 1 << 20)
            assert data, f"{program()} ended"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        about = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent":
                self._page.requests.append(about["request"]["url"])
            case "Log.entryAdded":
                self._page.errors.append(about["entry"]["text"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self._page.errors.append(json.dumps(about))
        return message
