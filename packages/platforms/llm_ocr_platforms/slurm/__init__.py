"""Slurm: a job array with one task per share."""
