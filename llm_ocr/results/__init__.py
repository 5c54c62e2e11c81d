"""Finished pages to files: the stored schema, Markdown, dataset."""
