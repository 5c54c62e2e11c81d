"""Convert files to pages: sources, renderer processes, and text layers."""
