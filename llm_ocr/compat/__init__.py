"""Datasets and interfaces of the predecessor."""
