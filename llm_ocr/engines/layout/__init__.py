"""Pages read by their regions: a detector finds them, each is asked for by itself, the answers are put in order."""
