"""HTTP client of one server that speaks OpenAI's chat API."""
