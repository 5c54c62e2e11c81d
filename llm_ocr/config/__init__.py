"""Definitions and sources of all settings, and the only reader of the environment."""
