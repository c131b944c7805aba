"""A real browser for tests: Chromium over its DevTools pipe, which needs no driver and no port."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Browser", "browser_path"]

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_PATIENCE_SECONDS = 30.0


def browser_path() -> str | None:
    """Where Chromium is, by the names that distributions give it."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


class Browser:
    """One page of a browser of the test's own. Events are kept: console, requests, dialogs, exceptions."""

    def __init__(self, path: str, profile: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self._number = 0
        self._buffer = b""
        self._answers: dict[int, dict[str, Any]] = {}
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        # The browser reads from 3 and writes to 4, whatever numbers the pipes got here.
        relay = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", relay, "browser", path, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = ours_in, ours_out
        self._session: str | None = None
        targets = self.command("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.command("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.command(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._session = None
            self.command("Browser.close")
            self._process.wait(_PATIENCE_SECONDS)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        finally:
            os.close(self._in)
            os.close(self._out)

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser to do something, and wait for its answer."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while number not in self._answers:
            self._read(deadline)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([self._in], [], [], left)[0]:
            raise TimeoutError("the browser did not answer")
        data = os.read(self._in, 1 << 20)
        if not data:
            raise TimeoutError("the browser ended")
        *messages, self._buffer = (self._buffer + data).split(b"\0")
        for text in messages:
            message = json.loads(text)
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self.events.append(message)

    def size(self, width: int, height: int, *, mobile: bool = False) -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )

    def scheme(self, name: str, media: str = "") -> None:
        """What the reader's system prefers, `light` or `dark`; with media `print`, as it is printed."""
        self.command(
            "Emulation.setEmulatedMedia",
            media=media,
            features=[{"name": "prefers-color-scheme", "value": name}],
        )

    def open(self, path: Path, fragment: str = "") -> None:
        """Load a file and wait until its script has run; events of earlier pages are forgotten."""
        self.command("Page.navigate", url="about:blank")
        self.events.clear()
        self.command("Page.navigate", url=path.as_uri() + fragment)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self.value("document.readyState === 'complete' && location.protocol === 'file:'"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} did not load")

    def value(self, expression: str) -> Any:
        """What an expression gives in the page; a promise is waited for."""
        answer = self.command(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
            userGesture=True,
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def press(self, key: str, code: int = 0) -> None:
        """A key as a person presses it."""
        text = {"text": key} if len(key) == 1 else {}
        text = {"text": "\r"} if key == "Enter" else text
        common = {"key": key, "windowsVirtualKeyCode": code or _CODES.get(key, ord(key[0].upper()))}
        self.command("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **common, **text)
        self.command("Input.dispatchKeyEvent", type="keyUp", **common)

    def click(self, selector: str) -> None:
        """Click on the middle of the first element that a selector finds."""
        x, y = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center', behavior: 'instant'}); const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        data = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))


_CODES = {
    "Escape": 27,
    "Enter": 13,
    "Tab": 9,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Home": 36,
}
