"""Whether the ledgers of pages balance, and their totals."""

from collections.abc import Mapping

from llm_ocr.types import InkTotals, Ledger, Reason, Status

#: Shares of a page's ink and of its text above which the page is `degraded`, by the evidence. With ink, 1 % of 480
#: readings of pages have more. With a text layer or OCR, a passage of `text_layer.SHORTEST` letters is enough.
MOST: Mapping[str, float] = {"ink": 0.02, "layer": 0.001, "ocr": 0.001}


def has_unread_ink(ledger: Ledger | None, reason: Reason | None) -> bool:
    """Return whether more ink is unread than a page that balances may have, or the page's reason says so."""
    return reason is Reason.UNREAD or (ledger is not None and ledger.unread_share > MOST[ledger.verified_by])


def has_unsupported_text(ledger: Ledger | None, reason: Reason | None) -> bool:
    """Return whether more text is unsupported than a page that balances may have, or the page's reason says so."""
    return reason is Reason.UNSUPPORTED or (ledger is not None and ledger.unsupported_share > MOST[ledger.verified_by])


def is_balanced(status: Status, ledger: Ledger | None) -> bool:
    """Return whether a page is ok and both sides of its ledger balance; False for a page without a ledger."""
    is_known = status is Status.OK and ledger is not None
    return is_known and not (has_unread_ink(ledger, None) or has_unsupported_text(ledger, None))


def ink_totals(ledger: Ledger | None, reason: Reason | None) -> InkTotals:
    """Return the totals of one page; zeros without a ledger."""
    if ledger is None:
        return InkTotals()
    flags = int(has_unread_ink(ledger, reason)), int(has_unsupported_text(ledger, reason))
    return InkTotals(1, ledger.ink, ledger.ink * ledger.unread_share, *flags)
