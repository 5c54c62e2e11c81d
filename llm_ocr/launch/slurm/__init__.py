"""Slurm: a job array."""
