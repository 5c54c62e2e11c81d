"""What is made of a finished workspace: exports in the formats of other tools, a static site, and an HTML report."""
