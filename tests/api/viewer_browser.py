"""Headless Chromium for tests of sites, controlled through its DevTools protocol."""

import asyncio
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import aiohttp

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    *("--hide-scrollbars", "--remote-debugging-port=0"),
)
#: Timeout in seconds of each wait of a test.
TIMEOUT = 90


class Refused(Exception):
    """The browser refused a request."""


class Browser:
    """One tab; a context manager. `log` contains the console's errors and policy violations."""

    def __init__(self, profile: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._profile = profile
        self._number = 0
        self.log: list[str] = []
        self.requests: list[str] = []

    def __enter__(self) -> "Browser":
        program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        command = [program, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self._loop.run_until_complete(self._connect())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "_session"):
            self._loop.run_until_complete(self._session.close())
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._loop.close()

    async def _connect(self) -> None:
        file = self._profile / "DevToolsActivePort"
        end = time.monotonic() + TIMEOUT
        while not (file.exists() and file.read_text().count("\n")):
            assert time.monotonic() < end, "Chromium does not start"
            assert self._process.poll() is None, "Chromium ended"
            await asyncio.sleep(0.05)
        port = file.read_text().split()[0]
        self._session = aiohttp.ClientSession(trust_env=False)
        while not (tab := await self._tab(port)):
            assert time.monotonic() < end, "Chromium opens no tab"
            await asyncio.sleep(0.05)
        self._socket = await self._session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self._call(f"{domain}.enable", {})

    async def _tab(self, port: str) -> dict[str, Any] | None:
        """Return the first tab, which may appear later than the port."""
        async with self._session.get(f"http://127.0.0.1:{port}/json/list") as reply:
            return next((one for one in await reply.json() if one["type"] == "page"), None)

    async def _call(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            message = await asyncio.wait_for(self._socket.receive(), TIMEOUT)
            data = json.loads(message.data)
            if data.get("id") == self._number:
                if "error" in data:
                    raise Refused(data["error"])
                return data["result"]
            self._notice(data)

    def _notice(self, data: dict[str, Any]) -> None:
        found = data.get("params", {})
        match data.get("method"):
            case "Runtime.exceptionThrown":
                details = found["exceptionDetails"]
                self.log.append(str(details.get("exception", {}).get("description") or details["text"]))
            case "Log.entryAdded":
                self.log.append(f"{found['entry']['text']} {found['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.requests.append(found["request"]["url"])

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._loop.run_until_complete(self._call(method, parameters))

    def run(self, script: str) -> Any:
        """Return the value of an expression; promises are awaited."""
        given = {"expression": script, "awaitPromise": True, "returnByValue": True, "userGesture": True}
        done = self.call("Runtime.evaluate", **given)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until the expression is true."""
        end = time.monotonic() + TIMEOUT
        while not self._holds(condition):
            assert time.monotonic() < end, f"never: {condition}; the console says {self.log}"
            time.sleep(0.02)

    def hear(self, words: str) -> None:
        """Wait until the console has printed these words."""
        end = time.monotonic() + TIMEOUT
        while not any(words in line for line in self.log):
            assert time.monotonic() < end, f"never said: {words}; the console says {self.log}"
            self.run("true")  # earlier messages precede the answer

    def _holds(self, condition: str) -> bool:
        """Return whether the condition holds; false while one page replaces another and none can be queried."""
        try:
            return bool(self.run(f"Boolean({condition})"))
        except Refused:
            return False

    def open(self, url: str) -> None:
        """Load a site, as from an empty tab, until its viewer is ready."""
        self.call("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank'")
        self.log.clear()
        self.requests.clear()
        self.call("Page.navigate", url=url)
        self.wait("document.documentElement && document.documentElement.dataset.ready === 'yes'")

    def go(self, place: str) -> None:
        """Follow a link within the site."""
        self.run(f"void (location.hash = {json.dumps(place)})")

    def press(self, key: str) -> None:
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        codes = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39}
        code = codes.get(key, 0)
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, windowsVirtualKeyCode=code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def texts(self, selector: str) -> list[str]:
        """Return the texts of the visible elements."""
        found = f"[...document.querySelectorAll({json.dumps(selector)})]"
        return self.run(f"{found}.filter((one) => one.checkVisibility()).map((one) => one.innerText.trim())")

    def size(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, value: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])
