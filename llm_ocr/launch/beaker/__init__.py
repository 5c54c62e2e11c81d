"""Beaker: an experiment with one replica per share."""
