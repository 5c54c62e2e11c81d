"""Hugging Face Jobs: one job per share; the library is a wheel with a known hash."""
