"""Hugging Face Jobs: a job per share; the library travels as a wheel known by its hash."""
