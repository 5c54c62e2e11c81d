"""Keeps the servers of a model busy and loses no question: windows, patience, restarts, replays, quarantine."""
