"""A simulated vLLM server with an oracle: real HTTP, a modelled GPU, made-up answers, faults on demand.

`with running(preset="a100", speed=20) as simulator:` starts one in a process of its own; `simulator.url` ends in /v1.
"""

from llm_ocr.testing.simulator.process import Running, running

__all__ = ["Running", "running"]
