"""This machine: a process per share."""
