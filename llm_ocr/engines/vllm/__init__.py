"""Run model servers: `vllm serve` under supervision, and connections to external servers."""
