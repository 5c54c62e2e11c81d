"""Kubernetes: an Indexed Job with a pod per share."""
