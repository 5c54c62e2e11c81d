"""Print documents with headless Chromium, and measure the boxes of their parts."""

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import truth_pages
import websocket

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-extensions", "--hide-scrollbars"),
    *("--font-render-hinting=none", "--remote-debugging-port=0"),
)
SECONDS = 60
PIXELS = 0.75  # points per CSS pixel

#: Move parts from the template to the page while they fit. Return for each page: number of the block -> rectangles.
MEASURE = """
[...document.querySelectorAll('section')].map((page) => {
  const body = page.querySelector('.body'), frame = page.getBoundingClientRect();
  const columns = Number(body.dataset.columns), gap = Number(body.dataset.gap);
  const full = body.clientWidth, column = (full - gap * (columns - 1)) / columns;
  for (const part of [...body.querySelector('template').content.children]) {
    body.append(part);
    const most = part.matches('.span') ? full : column;
    const inside = [part, ...part.querySelectorAll('table, .formula > span')];
    const wide = inside.some((one) => [...one.getClientRects()].some((r) => r.width > most + 1));
    if (!wide && body.scrollWidth <= full + 1 && body.scrollHeight <= body.clientHeight + 1) continue;
    part.remove();
    if (!wide && !part.matches('.unit')) break;
  }
  while (body.lastElementChild.matches('h1, h2, h3')) body.lastElementChild.remove();
  const found = {};
  for (const one of page.querySelectorAll('[data-b]'))
    found[one.dataset.b] = [...one.getClientRects()].map((r) => [
      (r.left - frame.left) / frame.width, (r.top - frame.top) / frame.height,
      (r.right - frame.left) / frame.width, (r.bottom - frame.top) / frame.height]);
  return found;
})
"""


class Chromium:
    """One tab, controlled through the DevTools protocol."""

    def __init__(self, socket: websocket.WebSocket) -> None:
        self._socket = socket
        self._number = 0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"Chromium refuses {method}: {message['error']}")
                return dict(message["result"])

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(str(done["exceptionDetails"]))
        return done["result"].get("value")

    def load(self, html: str) -> None:
        """Replace the tab's document."""
        frame = self.call("Page.getFrameTree")["frameTree"]["frame"]["id"]
        self.call("Page.setDocumentContent", frameId=frame, html=html)

    def pdf(self) -> bytes:
        while not self.run("[...document.images].every((one) => one.complete)"):
            time.sleep(0.01)
        done = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(done["data"])


@contextmanager
def chromium() -> Iterator[Chromium]:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        raise SystemExit("Chromium is not installed: apt-get install chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            address = _address(Path(profile) / "DevToolsActivePort", process)
            with_timeout = {"timeout": SECONDS, "suppress_origin": True, "http_no_proxy": ["127.0.0.1"]}
            socket = websocket.create_connection(address, **with_timeout)
            tab = Chromium(socket)
            tab.call("Emulation.setEmulatedMedia", media="print")
            yield tab
            socket.close()
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(file: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the address of the first tab, which may appear later than the port."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and process.poll() is None:
        if file.exists() and file.read_text().count("\n"):
            with direct.open(f"http://127.0.0.1:{file.read_text().split()[0]}/json/list") as reply:
                for tab in json.load(reply):
                    if tab["type"] == "page":
                        return str(tab["webSocketDebuggerUrl"])
        time.sleep(0.05)
    raise RuntimeError("Chromium does not start")


def generate(tab: Chromium, seed: int, pages: int, folder: Path) -> list[dict[str, Any]]:
    """Write a document as PDF and return the truth of its pages."""
    document = truth_pages.compose(seed, pages)
    tab.call(
        "Emulation.setDeviceMetricsOverride",
        width=document.width,
        height=document.height,
        deviceScaleFactor=1,
        mobile=False,
    )
    tab.load(document.html)
    measured = tab.run(MEASURE)
    name = f"d{seed:06d}"
    (folder / f"{name}.pdf").write_bytes(tab.pdf())
    found = []
    for number, (page, boxes) in enumerate(zip(document.pages, measured, strict=True), 1):
        blocks = [
            {**block, "boxes": [[round(edge, 4) for edge in box] for box in boxes[str(place)]]}
            for place, block in enumerate(page["blocks"])
            if str(place) in boxes
        ]
        head = {"id": f"{name}-p{number}", "file": f"{name}.pdf", "page": number, "tags": page["tags"]}
        head |= {"width": document.width * PIXELS, "height": document.height * PIXELS}
        found.append({**head, "scanned": False, "blocks": blocks})
    return found
