"""How the contract suite makes an empty store on Azure: on Azurite, the emulator of Azure's own."""

import atexit
import base64
import contextlib
import email.utils
import hashlib
import hmac
import os
import secrets
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from llm_ocr.storage import ObjectStore, StoreOptions, open_store

#: Azure's pages have 5,000 objects: a slow test of this package lists two.
MANY = 210
#: Tool of the conftest that the tests need.
NEEDS = "azurite"
#: The public account of every Azurite.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
ENVIRONMENT = {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY, "NO_PROXY": "127.0.0.1"}

_started: list[tuple[subprocess.Popen[bytes], str]] = []


def azurite() -> str:
    """The endpoint of a server that ends with the process; another one if a failed test has killed it."""
    if not _started or _started[-1][0].poll() is not None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = ["azurite-blob", "--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
        process = subprocess.Popen([*command, "--blobPort", str(port)], stdout=subprocess.DEVNULL)
        atexit.register(process.kill)
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        _started.append((process, f"http://127.0.0.1:{port}/{ACCOUNT}"))
    return _started[-1][1]


def new_container() -> str:
    """The name of a new, empty container, made by a signed request of our own: obstore makes none."""
    name, date = f"c-{secrets.token_hex(8)}", email.utils.formatdate(usegmt=True)
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06", "Content-Type": "text/plain", "Content-Length": "0"}
    signed = f"PUT\n\n\n\n\ntext/plain\n\n\n\n\n\n\nx-ms-date:{date}\nx-ms-version:2021-08-06\n"
    signed += f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256)).decode()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{signature}"
    url = f"{azurite()}/{name}?restype=container"
    with urllib.request.urlopen(urllib.request.Request(url, b"", headers, method="PUT")):
        return name


@contextlib.contextmanager
def azure_environment(**changes: str) -> Iterator[None]:
    """The environment with the credentials of Azurite and no other setting of Azure."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("AZURE_")}
    with mock.patch.dict(os.environ, {**others, **ENVIRONMENT, **changes}, clear=True):
        yield


@contextlib.contextmanager
def make_store(tmp_path: Path) -> Iterator[ObjectStore]:
    """A store in a new container."""
    endpoint = azurite()
    with azure_environment():
        yield open_store(f"az://{new_container()}/a folder/run", StoreOptions(endpoint=endpoint))
