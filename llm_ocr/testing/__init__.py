"""Fakes that ship: real servers and stores that misbehave on purpose."""
