"""Export finished results to the formats of other tools."""
