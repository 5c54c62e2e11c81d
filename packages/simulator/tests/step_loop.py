"""The same engine, taken step by step and token by token: slow, plain, and without closed forms."""

from dataclasses import dataclass
from math import ceil


@dataclass(eq=False)
class Request:
    arrived: float
    prompt: int
    output: int
    images: int
    queued: float = 0.0
    kv: int = 0  # computed tokens
    made: int = 0
    blocks: int = 0
    admitted: float | None = None
    first: float | None = None
    end: float | None = None
    preempted: int = 0
    todo: int | None = None  # tokens of the prefill under way


def run(requests, costs, limits):  # noqa: C901 - one loop that can be read from top to bottom
    """Fill in `admitted`, `first`, `end` and `preempted` of every request."""
    threads = [0.0] * (limits.api_server_count * limits.renderer_num_workers)
    for request in requests:
        request.queued = request.arrived
        if request.images:
            threads.sort()
            request.queued = threads[0] = max(threads[0], request.arrived) + request.images * costs.preprocess
    coming = sorted(requests, key=lambda request: request.queued)
    waiting, running = [], []
    free, now = limits.blocks, 0.0
    while coming or waiting or running:
        if not waiting and not running:
            now = max(now, coming[0].queued)
        while coming and coming[0].queued <= now + 1e-9:
            waiting.append(coming.pop(0))

        # Who has its prompt in the cache decodes; each takes a block when its last one is full.
        preempted = False
        for request in list(running):
            while request in running and not request.todo and request.blocks * limits.block_size < request.kv + 1:
                if free:
                    free -= 1
                    request.blocks += 1
                    continue
                victim = running.pop()
                free += victim.blocks
                victim.blocks = victim.kv = 0
                victim.todo = None
                victim.preempted += 1
                waiting.insert(0, victim)
                preempted = True

        decoding = [request for request in running if not request.todo]
        budget = limits.max_num_batched_tokens - len(decoding)
        chunks, images = {}, 0
        for request in running:
            if request.todo:
                chunks[request] = min(budget, request.todo - request.kv)
                budget -= chunks[request]
        while not preempted and waiting and budget > 0 and len(running) < limits.max_num_seqs:
            todo = waiting[0].prompt + waiting[0].made
            if ceil(todo / limits.block_size) > free:
                break
            request = waiting.pop(0)
            request.todo = todo
            request.blocks = ceil(todo / limits.block_size)
            free -= request.blocks
            if request.admitted is None:
                request.admitted = now
            running.append(request)
            chunks[request] = min(budget, todo)
            budget -= chunks[request]
            images += request.images

        for request in decoding:
            request.kv += 1
        for request, chunk in chunks.items():
            request.kv += chunk
        context = sum(request.kv for request in running)
        tokens = len(decoding) + sum(chunks.values())
        gpu = max(costs.step + costs.context * context, costs.token * tokens) + costs.image * images
        core = costs.engine_step + costs.engine_token * (len(decoding) + len(chunks)) + costs.engine_image * images
        now += max(gpu, core)
        for request in list(running):
            if request.todo and request.kv < request.todo:
                continue
            request.todo = None
            request.made += 1
            if request.first is None:
                request.first = now
            if request.made == request.output:
                request.end = now
                free += request.blocks
                running.remove(request)
    return requests
