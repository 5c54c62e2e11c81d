"""Modal: one call of a deployed function per share."""
