"""A simulated vLLM server: real HTTP, a modeled GPU, synthetic answers, and faults on demand."""

from llm_ocr_simulator.process import Running, running

__all__ = ["Running", "running"]
