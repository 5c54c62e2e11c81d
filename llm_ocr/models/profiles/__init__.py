"""Profiles of models as data, in files by the form of their answers, as the parsers are."""
