"""This machine: one process per share."""
