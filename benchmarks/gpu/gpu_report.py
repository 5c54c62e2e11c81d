"""What the runs come to: medians, cost, ratios, and the table."""

import statistics
from collections.abc import Sequence
from typing import Any

from clients import OURS

#: Our throughput over that of vLLM's own client.
AIM = 0.97


def median(samples: Sequence[dict[str, Any]]) -> dict[str, float]:
    names = [name for name, value in samples[0].items() if isinstance(value, int | float)]
    return {name: statistics.median(sample[name] for sample in samples) for name in names}


def dollars(per_hour: float | None, pages_per_minute: float) -> float | None:
    """Cost of 10,000 pages at that rate, the start of the server apart."""
    return None if per_hour is None else round(per_hour * 10_000 / (60 * pages_per_minute), 3)


def ratios(clients: dict[str, Any]) -> dict[str, float]:
    """Our output tokens per second over each other client's, in the medians."""
    rates = {client: taken["median"]["output_tokens_per_s"] for client, taken in clients.items()}
    ours = rates.pop(OURS, None)
    return {client: round(ours / rate, 4) for client, rate in rates.items()} if ours else {}


def table(report: dict[str, Any]) -> str:
    own, where = report["own_server"], ", ".join(report["machine"]["gpu"]) or report["machine"]["cpu"] + " (no GPU)"
    cost = own["dollars_per_10000_pages"]
    lines = [
        f"{where}, vLLM {report['vllm']}, dummy weights, {report['output_tokens_per_page']} tokens a page",
        f"llm-ocr extract with its own server: {own['pages_per_min']} pages/min"
        f"{f', ${cost} per 10,000 pages' if cost is not None else ''};"
        f" start of the server {own['start_of_server_s']} s, whole job {own['job_s']} s",
        "client       pages/min  tokens/s  steady tokens/s  most running  CPU s/page",
    ]
    for client, taken in report["clients"].items():
        m = taken["median"]
        cpu = f"{m['cpu_s_per_page']:.4f}" if "cpu_s_per_page" in m else "-"
        lines.append(
            f"{client:<12} {m['pages_per_min']:>9.1f}  {m['output_tokens_per_s']:>8.0f}  "
            f"{m['steady_output_tokens_per_s']:>15.0f}  {m['most_running']:>12.0f}  {cpu:>10}"
        )
    lines += [f"llm-ocr / {client}: {ratio:.1%} (aim {AIM:.0%})" for client, ratio in report["ratios"].items()]
    return "\n".join(lines)
