"""Files to pages: sources, renderer processes, text layers."""
