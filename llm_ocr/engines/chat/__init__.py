"""A client of servers that speak OpenAI's chat API: vLLM, other servers, providers."""
