"""Stored results and files made from finished pages: schema, Markdown, dataset."""
