"""A real browser for tests: headless Chromium, driven over its DevTools pipe with the standard library alone."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_KEYS = {"ArrowRight": 39, "ArrowLeft": 37, "Tab": 9, "Enter": 13}


class Page:
    """One tab: open a file, click, press keys, look; what went wrong collects in `problems`."""

    def __init__(self, process: subprocess.Popen[bytes], send: int, receive: int) -> None:
        self._process = process
        self._send, self._receive = send, receive
        self._number = 0
        self._buffer = b""
        self._session: str | None = None
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, file: Path, width: int = 1366, height: int = 768, dark: bool = False, printed: bool = False) -> None:
        """Open a local file, on a screen or laid out for paper, and wait until it has loaded."""
        self._loaded = False
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="print" if printed else "screen", features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=file.resolve().as_uri())
        deadline = time.monotonic() + 60
        while not self._loaded:
            assert time.monotonic() < deadline, "the page does not load"
            self._read()

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Click the middle of an element with the mouse, as a person does."""
        x, y = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def point(self, selector: str) -> None:
        """Move the mouse over an element."""
        x, y = self._middle(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        """Press a key and let it go."""
        code = _KEYS.get(key) or ord(key.upper())
        text = {"Enter": {"text": "\r"}}.get(key, {} if key in _KEYS else {"text": key})
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def screenshot(self, file: Path, whole: bool = False) -> None:
        """Write what is seen, or the whole page, as PNG."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole, format="png")
        file.write_bytes(base64.b64decode(answer["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol, and its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            pass
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _middle(self, selector: str) -> tuple[float, float]:
        middle = self.run(
            f"(() => {{ const element = document.querySelector({json.dumps(selector)}); if (!element) return null; "
            "element.scrollIntoView({block: 'center', behavior: 'instant'}); "
            "const box = element.getBoundingClientRect(); "
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        assert middle, f"there is no {selector}"
        return middle[0], middle[1]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self._receive, 1 << 20)
            assert more, f"the browser has ended ({self._process.poll()})"
            self._buffer += more
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, said: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Runtime.exceptionThrown":
            self.problems.append(str(said["exceptionDetails"].get("exception", said["exceptionDetails"])))
        elif event == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.problems.append(str(said["args"]))
        elif event == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.problems.append(said["entry"]["text"])
        elif event == "Network.loadingFailed":
            self.problems.append(said["errorText"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A browser with a new profile folder, which is ended on the way out."""
    assert CHROMIUM
    with piped(CHROMIUM, *_OPTIONS, f"--user-data-dir={profile}", "about:blank") as (process, send, receive):
        yield Page(process, send, receive)


@contextmanager
def piped(*command: str) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """A process that reads from file descriptor 3 and writes to 4, and the other ends of both."""
    to_process, send = os.pipe()
    receive, from_process = os.pipe()

    def as_three_and_four() -> None:
        # First to free numbers beyond both, in case the pipes have these numbers themselves.
        reading, writing = (fcntl.fcntl(end, fcntl.F_DUPFD, 5) for end in (to_process, from_process))
        os.dup2(reading, 3)
        os.dup2(writing, 4)

    process = subprocess.Popen(
        command,
        preexec_fn=as_three_and_four,
        close_fds=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_process)
    os.close(from_process)
    try:
        yield process, send, receive
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(send)
        os.close(receive)
