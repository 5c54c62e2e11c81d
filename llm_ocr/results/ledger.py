"""Account for a page: thresholds of a page that balances."""

#: Largest share of the ink that may be unread, and of the text that may be unsupported.
MAX_UNREAD = 0.02
MAX_UNSUPPORTED = 0.12
