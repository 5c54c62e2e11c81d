"""Our own model servers: `vllm serve` under supervision, and servers that somebody else runs."""
