"""Chromium, driven through a pipe by its DevTools protocol: https://chromedevtools.github.io/devtools-protocol"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
KEYS = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowDown": 40}


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


class Page:
    """A tab."""

    def __init__(self, call: Callable[..., dict[str, Any]]) -> None:
        self.call = call

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in JavaScript, or of the promise that it gives."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_until(self, condition: str, seconds: float = 120) -> float:
        """Poll until a JavaScript condition is true; gives the seconds that it took."""
        start = time.monotonic()
        while not self.evaluate(condition):
            assert time.monotonic() < start + seconds, f"{condition} did not become true in {seconds:g} seconds"
            time.sleep(0.02)
        return time.monotonic() - start

    def press(self, key: str) -> None:
        code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def emulate(self, *, scheme: str = "light", medium: str = "") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=medium, features=features)

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def print_to_pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"])


@contextmanager
def opened(browser: str, options: Sequence[str] = ()) -> Iterator[Page]:
    """An empty tab of a new browser."""
    (its_input, commands), (answers, its_output) = ([_high(end) for end in os.pipe()] for _ in range(2))

    def as_three_and_four() -> None:
        os.dup2(its_input, 3)
        os.dup2(its_output, 4)

    with TemporaryDirectory(prefix="bertline-browser-", ignore_cleanup_errors=True) as profile:
        command = [browser, "--headless", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        command += ["--no-sandbox", "--no-first-run", *options, "about:blank"]  # the sandbox refuses root
        process = subprocess.Popen(
            command, preexec_fn=as_three_and_four, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(its_input)
        os.close(its_output)
        with os.fdopen(commands, "wb") as writing, os.fdopen(answers, "rb", buffering=0) as reading:
            received, number = bytearray(), 0

            def call(method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
                nonlocal number
                number += 1
                message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
                if session is not None:
                    message["sessionId"] = session
                writing.write(json.dumps(message).encode() + b"\0")
                writing.flush()
                while True:
                    while b"\0" not in received:
                        more = reading.read(1 << 20)
                        assert more, "the browser ended"
                        received.extend(more)
                    one, _, rest = bytes(received).partition(b"\0")
                    received[:] = rest
                    answer = json.loads(one)
                    if answer.get("id") == number:
                        assert "error" not in answer, (method, answer["error"])
                        result: dict[str, Any] = answer["result"]
                        return result

            try:
                (tab,) = (one for one in call("Target.getTargets")["targetInfos"] if one["type"] == "page")
                session = call("Target.attachToTarget", targetId=tab["targetId"], flatten=True)["sessionId"]
                yield Page(lambda method, **parameters: call(method, session, **parameters))
            finally:
                process.terminate()
                process.wait()


def _high(end: int) -> int:
    """The same end of a pipe under a number that does not collide with 3 and 4."""
    high = fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(end)
    return high
