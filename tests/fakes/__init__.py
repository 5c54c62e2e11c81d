"""Fakes: real servers on loopback, containers as subprocesses, and stores that fail on purpose."""
