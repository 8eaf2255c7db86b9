"""A real Chromium without a window, spoken to over a pipe in the DevTools protocol: no driver, no port, no further package."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
MISSING = (
    "there is no Chromium on PATH, which this test needs. Next: make browser (installs it on Debian), or your system's package"
)


class Page:
    """One page of the browser, and all that it did since `visit`."""

    def __init__(self, out: Any, into: Any) -> None:
        self._out, self._into, self._count = out, into, 0
        self._kept = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a command; what happens meanwhile is kept in `events`."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        while True:
            came = self._read()
            if came.get("id") == self._count:
                assert "error" not in came, f"{method}: {came}"
                result: dict[str, Any] = came["result"]
                return result

    def visit(self, file: Path) -> None:
        """Open a file and wait until it is loaded."""
        self.events.clear()
        self.send("Page.navigate", url=file.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._read()

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def look_like(self, width: int, height: int, *, phone: bool = False, dark: bool = False, paper: bool = False) -> None:
        """Set the window, and what the reader prefers."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media="print" if paper else "screen", features=[scheme])

    def press(self, key: str) -> None:
        """A key goes down and up."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        code = {"Enter": 13, " ": 32, "Tab": 9}[key]
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, text=text, windowsVirtualKeyCode=code)

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.send("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings of the console, uncaught exceptions and what the page's policy stopped."""
        told = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        return [json.dumps(event["params"]) for event in self.events if event["method"] in told]

    @property
    def requests(self) -> list[str]:
        """Every address that was asked for."""
        asked = (event for event in self.events if event["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in asked]

    @property
    def blocked(self) -> list[str]:
        """Why requests were stopped before they left."""
        failed = (event["params"] for event in self.events if event["method"] == "Network.loadingFailed")
        return [params["blockedReason"] for params in failed if "blockedReason" in params]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._kept:
            piece = self._into.read1(1 << 20)
            assert piece, "Chromium ended"
            self._kept += piece
        message, _, self._kept = self._kept.partition(b"\0")
        came: dict[str, Any] = json.loads(message)
        if "method" in came:
            self.events.append(came)
        return came


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A browser with a fresh profile and one page. Fails with the next step where there is none."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    assert program is not None, MISSING
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    command = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
    with subprocess.Popen(
        ["bash", "-c", command, program, *_FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(theirs_in)
        os.close(theirs_out)
        with os.fdopen(ours_out, "wb") as out, os.fdopen(ours_in, "rb") as into:
            try:
                page = Page(out, into)
                yield page
                page.send("Page.close")
            finally:
                process.kill()
