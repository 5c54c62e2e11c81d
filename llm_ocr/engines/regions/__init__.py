"""Pages read region by region: detect, request each region, merge in reading order."""
