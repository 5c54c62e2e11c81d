"""Beaker: an experiment of N replicas."""
