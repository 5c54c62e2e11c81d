"""Run the simulator: `python -m llm_ocr_simulator --help`."""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

from aiohttp import web

from llm_ocr_simulator.options import VERSION, Options, read_options
from llm_ocr_simulator.reporting import OUT_OF_MEMORY, say
from llm_ocr_simulator.server import Simulator

_PARENT = os.getppid()  # read early: the parent may exit while this process starts
_PARENT_CHECK = 0.5  # seconds
_KEEP_ALIVE = 3600.0


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until stopped; return the exit code."""
    options = read_options(sys.argv[1:] if argv is None else argv, os.environ)
    if options.serve:
        say(f"INFO 11-20 12:00:00 [api_server.py:1978] vLLM API server version {VERSION}, model {options.model}")
    if options.oom_above is not None and options.limits.max_num_seqs > options.oom_above:
        say(OUT_OF_MEMORY)
        return 1
    if options.serve:
        tokens, length = options.limits.blocks * options.limits.block_size, options.max_model_len
        say(f"INFO 11-20 12:00:01 [kv_cache_utils.py:1087] GPU KV cache size: {tokens:,} tokens")
        say(
            f"INFO 11-20 12:00:01 [kv_cache_utils.py:1091] Maximum concurrency for {length:,} tokens per request: "
            f"{tokens / length:.2f}x"
        )
    time.sleep(options.startup_seconds + options.faults.silent_start)
    return asyncio.run(_serve(options))


async def _serve(options: Options) -> int:
    simulator = Simulator(options)
    # A client that closes its connection cancels its handler, which aborts the request.
    runner = web.AppRunner(
        simulator.app(), handler_cancellation=True, access_log=None, keepalive_timeout=_KEEP_ALIVE, shutdown_timeout=0.1
    )
    await runner.setup()
    site = web.TCPSite(runner, options.host, options.port, backlog=1024)
    try:
        await site.start()
    except OSError as error:
        await runner.cleanup()
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)  # negative: unknown host
        hint = "Use --port 0 for a free port."
        sys.stderr.write(f"simulator: cannot listen on {options.host}:{options.port}: {why}. {hint}\n")
        return 1
    host, port = runner.addresses[0][:2]
    loop = asyncio.get_running_loop()
    signalled = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled.set)
    if options.serve:
        say("INFO:     Application startup complete.")
    else:
        say(json.dumps({"url": f"http://{host}:{port}/v1", "pid": os.getpid()}))
    await _until_told(options, simulator, site, signalled)
    await runner.cleanup()
    return 0


async def _until_told(options: Options, simulator: Simulator, site: web.TCPSite, signalled: asyncio.Event) -> None:
    """Return when the process must exit: its time is over, its parent or stdin is gone, or a signal arrived."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    loop.call_later(options.lifetime, told.set)
    watches = [loop.create_task(told.wait()), loop.create_task(_stopping(options, simulator, site, signalled))]
    if options.follow_parent:
        watches.append(loop.create_task(_parent_gone()))
    if options.until_stdin_closes:
        threading.Thread(target=_read_stdin, args=(loop, told), daemon=True).start()
    _, others = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()


async def _stopping(options: Options, simulator: Simulator, site: web.TCPSite, signalled: asyncio.Event) -> None:
    """Stop as vLLM does after SIGTERM: without --shutdown-timeout, its engine stops at once and open requests hang."""
    await signalled.wait()
    if not options.serve:
        return
    say("INFO:     Shutting down")
    await site.stop()
    if not options.shutdown_timeout:
        simulator.live.freeze()
    deadline = time.monotonic() + (options.shutdown_timeout or options.lifetime)
    while simulator.in_flight and time.monotonic() < deadline:  # noqa: ASYNC110 - at most a few times per process
        await asyncio.sleep(0.02)
    await asyncio.sleep(options.exit_seconds)


async def _parent_gone() -> None:
    while os.getppid() == _PARENT:  # noqa: ASYNC110 - no event exists for it
        await asyncio.sleep(_PARENT_CHECK)


def _read_stdin(loop: asyncio.AbstractEventLoop, told: asyncio.Event) -> None:
    # Not through sys.stdin: its lock, held by a waiting thread, aborts the interpreter at exit.
    while os.read(0, 4096):
        continue
    loop.call_soon_threadsafe(told.set)


if __name__ == "__main__":
    sys.exit(main())
