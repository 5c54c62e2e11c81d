"""Kubernetes: an Indexed Job with one pod per share."""
