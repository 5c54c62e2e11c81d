"""Profiles of model families: one data file per family."""
