"""Ledger of a page: thresholds, and which side of it does not balance."""

from llm_ocr.types import InkTotals, Ledger, Reason

#: Largest share of the ink that may be unread, and of the text that may be unsupported, on a page that balances.
MAX_UNREAD = 0.02
MAX_UNSUPPORTED = 0.12


def has_unread_ink(ledger: Ledger | None, reason: Reason | None) -> bool:
    """Return whether more ink is unread than a page that balances may have, or the page's reason says so."""
    return reason is Reason.UNREAD or (ledger is not None and ledger.unread_share > MAX_UNREAD)


def has_unsupported_text(ledger: Ledger | None, reason: Reason | None) -> bool:
    """Return whether more text is unsupported than a page that balances may have, or the page's reason says so."""
    return reason is Reason.UNSUPPORTED or (ledger is not None and ledger.unsupported_share > MAX_UNSUPPORTED)


def ink_totals(ledger: Ledger | None, reason: Reason | None) -> InkTotals:
    """Return the totals of one page; zeros without a ledger."""
    if ledger is None:
        return InkTotals()
    flags = int(has_unread_ink(ledger, reason)), int(has_unsupported_text(ledger, reason))
    return InkTotals(1, ledger.ink, ledger.ink * ledger.unread_share, *flags)
