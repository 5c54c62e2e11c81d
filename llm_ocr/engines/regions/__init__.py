"""Read pages by regions: detect regions, request each region, and merge in reading order."""
