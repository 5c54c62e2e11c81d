"""A key goes to the server that it is for, and to no other one that this server names."""

import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock

from llm_ocr.launch.runpod.api import Api


def test_a_redirect_of_runpods_does_not_carry_the_key_elsewhere():
    seen: list[tuple[str, str | None]] = []

    class Both(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers["Authorization"]))
            if self.path == "/v2/e/health":
                self.send_response(302)
                self.send_header("Location", f"http://localhost:{self.server.server_port}/elsewhere")
                self.end_headers()
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Both)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with mock.patch.dict(os.environ, {"RUNPOD_API_KEY": "of the tests"}):
            Api(f"http://127.0.0.1:{server.server_port}").get("v2/e/health")
    finally:
        server.shutdown()
        server.server_close()
    assert seen == [("/v2/e/health", "Bearer of the tests"), ("/elsewhere", None)]
