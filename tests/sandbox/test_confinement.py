"""Confinement is permanent for any code in a worker, and workers run on kernels without it."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from llm_ocr.sandbox import confinement, seccomp
from llm_ocr.sandbox.confinement import Confinement
from llm_ocr.sandbox.pool import Limits, WorkerPool

#: Worker processes are what is tested here.
OWN_WORKERS = True

MODULE = "tests.fakes.misbehaving_worker"


def printed(*words: str) -> str:
    """What a Python program prints."""
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def offered() -> dict[str, bool]:
    return json.loads(printed("-m", "llm_ocr.sandbox.confinement"))


def need(offered: dict[str, bool], *names: str) -> None:
    lacking = [name for name in names if not offered[name]]
    if lacking:
        pytest.skip(f"this kernel does not offer: {', '.join(lacking)}")


def worker(*, confined: bool = True) -> WorkerPool:
    return WorkerPool(MODULE, workers=1, limits=Limits(memory=1 << 30, confined=confined))


def attacked(*attacks: tuple[str, object], confined: bool = True) -> list[str]:
    """What the worker says of each attack, made one after the other by the same worker: an error's name, or nothing."""

    async def main():
        asked = [{"how": how, "target": str(target)} for how, target in attacks]
        async with worker(confined=confined) as pool:
            return [(await pool.call("attack", attack, deadline=30))["refused"] for attack in asked]

    return asyncio.run(main())


def test_unconfined_worker_keeps_the_permissions_of_its_user(offered, tmp_path):
    need(offered, "no file is written", "only given files are read")
    (tmp_path / "key").write_text("s3cret")
    attacks = [("read", tmp_path / "key"), ("write", tmp_path / "new"), ("start", "/bin/true")]
    assert attacked(*attacks, confined=False) == ["", "", ""]
    assert "" not in attacked(*attacks)


def test_a_worker_reaches_no_server(offered, tmp_path):
    need(offered, "no network")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "s"))
        local.listen()
        port = server.getsockname()[1]
        said = attacked(
            ("connect", port), ("packet", port), ("unix socket", tmp_path / "s"), ("resolve", "example.org")
        )
    assert said == ["PermissionError", "PermissionError", "PermissionError", "gaierror"]


def test_a_worker_reads_no_file_of_the_users(offered, tmp_path, monkeypatch):
    need(offered, "only given files are read")
    (tmp_path / "key").write_text("s3cret")
    monkeypatch.chdir(tmp_path)
    places = [("read", tmp_path / "key"), ("list", tmp_path), ("read", "key"), ("list", "/"), ("list", Path.home())]
    system = [("read", "/etc/passwd"), ("read", f"/proc/{os.getpid()}/environ"), ("memory", os.getpid())]
    assert set(attacked(*places, *system)) == {"PermissionError"}


def test_a_worker_changes_no_file(offered, tmp_path):
    need(offered, "no file is written")
    file = tmp_path / "file"
    file.write_text("as it was")
    file.chmod(0o600)
    before = looks(file)
    changes = [(how, file) for how in ("write", "append", "remove", "rename", "change mode", "change times")]
    new = [("write", tmp_path / "new"), ("make folder", tmp_path / "folder"), ("link", tmp_path / "link")]
    assert set(attacked(*changes, *new)) == {"PermissionError"}
    assert (list(tmp_path.iterdir()), file.read_text(), looks(file)) == ([file], "as it was", before)


def looks(file: Path) -> tuple[int, int, int]:
    status = file.stat()
    return status.st_mode, status.st_mtime_ns, status.st_size


def test_a_worker_starts_nothing_and_reaches_no_other_process(offered):
    need(offered, *offered)
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        said = attacked(("start", "/bin/true"), ("trace", os.getpid()), ("namespace", 0), ("ring", 0))
        if confinement.landlock_version() >= 6:
            said += attacked(("signal", os.getpid()))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert set(said) <= {"PermissionError", "OSError"} and not seen  # io_uring is said not to exist


async def test_a_worker_gets_a_file_open_and_keeps_none(offered, tmp_path):
    """Also one that it could not open: for reading only, and closed when the request is answered."""
    need(offered, "no file is written")
    (tmp_path / "given").write_bytes(b"12345678 and more")

    async with worker() as pool:
        with (tmp_path / "given").open("rb") as file:
            asked = [pool.call("read_file", {}, deadline=30, files=(file.fileno(),)) for _ in range(40)]
            answers = await asyncio.gather(*asked)
            attack = {"how": "own file again", "target": str(answers[0]["number"])}
            refused = await pool.call("attack", attack, deadline=30, files=(file.fileno(),))
    assert {answer["begin"] for answer in answers} == {b"12345678"}
    assert len({answer["number"] for answer in answers}) == 1
    assert refused["refused"] == "PermissionError" and (tmp_path / "given").read_bytes() == b"12345678 and more"


def test_programs_that_are_named_start_and_no_others(require, offered):
    require("poppler")
    need(offered, "only given files are read")
    code = """
import subprocess, sys
from llm_ocr.sandbox.confinement import Confinement, confine, give_up_privileges
give_up_privileges()
print(confine(Confinement(programs=("pdfinfo", "no-such-program")))["no other program starts"])
for program in ("pdfinfo", "/bin/true"):
    try:
        print(subprocess.run([program, "-v"], capture_output=True).returncode)
    except PermissionError:
        print("refused")
"""
    assert printed("-c", code).split() == ["True", "0", "refused"]


NOTHING = """
import errno, runpy, sys
def refused(nr, *arguments):
    raise OSError(errno.{error}, "refused")
from llm_ocr.sandbox import confinement, seccomp
confinement.call = seccomp.call = refused
from llm_ocr.sandbox.confinement import Confinement, confine
assert not any(confine(Confinement()).values()), "nothing is in force, and nothing is said to be"
sys.argv = sys.argv[1:]
runpy.run_module({module!r}, run_name="__main__")
"""


@pytest.mark.parametrize("error", ["ENOSYS", "EPERM", "EINVAL"])
def test_workers_work_where_the_kernel_offers_no_confinement(error, tmp_path):
    """Old kernels and gVisor have no such call; containers refuse it."""
    from llm_ocr.sandbox.worker import encode

    program = tmp_path / "program.py"
    program.write_text(NOTHING.format(error=error, module=MODULE))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        request = b"".join(encode({"operation": "echo", "payload": {"value": "x"}}))
        words = [sys.executable, str(program), MODULE, json.dumps({"memory": 1 << 30, "door": theirs.fileno()})]
        done = subprocess.run(words, input=request, capture_output=True, pass_fds=(theirs.fileno(),))
    assert done.returncode == 0, done.stderr.decode()
    assert b'"got":"x"' in done.stdout


@pytest.mark.parametrize("offer", [confinement, seccomp])
def test_each_protection_works_without_the_other(offer):
    """Kernels before 5.13 have no Landlock; some systems have it and filter calls of their own."""
    lacking = seccomp if offer is confinement else confinement
    code = f"""
import llm_ocr.sandbox.{lacking.__name__.rpartition(".")[2]} as lacking
def refused(*arguments): raise OSError(38, "no such call")
lacking.call = refused
import sys
sys.argv = ["confinement"]
from llm_ocr.sandbox import confinement
confinement.give_up_privileges()
print([name for name, there in confinement.confine(confinement.Confinement()).items() if there])
"""
    said = printed("-c", code).strip()
    expected = {
        confinement: ["no file is written", "only given files are read", "no other program starts"],
        seccomp: ["no network", "no file is written", "no other program starts"],
    }[offer]
    if said == "[]":
        pytest.skip("this kernel does not offer it")
    assert said == str(expected)


def test_gpu_worker_keeps_files_and_loses_network(offered, tmp_path):
    need(offered, "no network")
    code = """
import pathlib, socket, subprocess, sys
from llm_ocr.sandbox import confinement
confinement.give_up_privileges()
print([name for name, there in confinement.confine(confinement.Confinement(devices=True)).items() if there])
pathlib.Path(sys.argv[1]).write_text("cache")
socket.socket(socket.AF_UNIX).close()
subprocess.run(["/bin/true"], check=True)
try: socket.socket()
except PermissionError: print("refused")
"""
    assert printed("-c", code, str(tmp_path / "cache")).splitlines() == ["['no network']", "refused"]


@pytest.mark.skipif(seccomp.machine() != "x86_64", reason="a 32-bit call is an x86 matter")
def test_system_calls_by_numbers_of_another_abi_are_refused(offered):
    need(offered, "no network")
    code = """
import ctypes
from llm_ocr.sandbox import confinement
confinement.give_up_privileges()
confinement.confine(confinement.Confinement())
library = ctypes.CDLL(None, use_errno=True)
print(library.syscall(0x40000000 + 41, 2, 1, 0), ctypes.get_errno())
"""
    assert printed("-c", code).split() == ["-1", "1"]


@pytest.mark.parametrize("architecture", [0, 1])
def test_each_system_call_has_its_own_number(architecture):
    tables = (seccomp.KERNEL, seccomp.NETWORK, seccomp.ALTERING, seccomp.STARTING, seccomp.UNKNOWN, seccomp.INSPECTED)
    numbers = [both[architecture] for table in tables for both in table.values() if both[architecture] is not None]
    assert len(numbers) == len(set(numbers))


@pytest.mark.slow
def test_folder_of_the_user_script_is_not_readable_as_a_whole(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("")
    (tmp_path / ".env").write_text("KEY=1")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    readable = set(confinement._python())
    assert str(tmp_path) not in readable and str(tmp_path / ".env") not in readable
    (tmp_path / "numpy").mkdir()  # pip install --target
    assert str(tmp_path) in set(confinement._python())


def test_home_and_temporary_folder_are_not_readable():
    allowed = confinement._allowed(())
    for place in ("/", "/home", "/root", "/tmp", "/etc", "/var", "/proc", str(Path.home())):
        assert place not in allowed
    assert Confinement() == Confinement(programs=(), devices=False)
