"""From what went wrong to the typed error that says what the engine may do about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from llm_ocr.engines.chat.complaints import Complaint, complaint_in, complaint_of, retry_after, shown
from llm_ocr.engines.serving import Address
from llm_ocr.errors import LlmOcrError, RequestLost, RequestRefused, ServerBusy, ServerError

_BUSY = frozenset({429, 503, 529})  # 529: "overloaded" of some providers


@dataclass(frozen=True, slots=True)
class Failures:
    """Makes the errors of one server. No text of it ever holds the key or an image."""

    address: Address

    def answered(self, status: int, headers: Mapping[str, str], body: bytes) -> LlmOcrError:
        """The error for a response that is not 200. `body` may be cut."""
        if 300 <= status < 400:
            return self._redirected(headers.get("Location", ""))
        return self._error(status, complaint_in(body), headers)

    def streamed(self, value: Any) -> LlmOcrError:
        """The error for an error object that came inside an answer."""
        complaint = complaint_of(value)
        return self._error(complaint.status, complaint, {})

    def lost(self, what: str, *, status: int = 0, unreachable: bool = False, stalled: bool = False) -> RequestLost:
        """The error for an answer that did not come whole."""
        what = shown(what, self.address.key)
        return RequestLost(f"{self.address.url}: {what}", status=status, unreachable=unreachable, stalled=stalled)

    def unusable(self, what: str, hint: str) -> ServerError:
        """The error for a server that will not answer any question."""
        return ServerError(f"{self.address.url}: {shown(what, self.address.key)}", hint=hint)

    def filtered(self) -> RequestRefused:
        """The error for an answer that a provider's content filter ended."""
        return RequestRefused(f"{self.address.url}: the content filter of the server ended the answer", status=200)

    def unknown(self, error: LlmOcrError, served: tuple[str, ...]) -> LlmOcrError:
        """The error for 404: names the models that the server has, when the one asked for is not among them."""
        model = self.address.model
        if not served or model in served:
            return error
        names = ", ".join(served[:20]) + (f" and {len(served) - 20} more" if len(served) > 20 else "")
        return self.unusable(
            f"does not serve the model {model!r}; it serves: {names}",
            "Ask for one of these by name: --server-model NAME",
        )

    def _error(self, status: int, complaint: Complaint, headers: Mapping[str, str]) -> LlmOcrError:
        text = shown(complaint.message or complaint.kind or "no reason given", self.address.key)
        message = f"{self.address.url} answered {status}: {text}"
        if status == 402 or complaint.code == "insufficient_quota":
            return ServerError(message, hint="The account at this provider is used up.")
        if status in _BUSY:
            return ServerBusy(message, status=status, retry_after=retry_after(headers))
        if status in (401, 403):
            hint = "Check the server's API key." if self.address.key else "Give the server's API key."
            return ServerError(message, hint=hint)
        if status in (404, 405):
            return ServerError(message, hint="Is the URL right, and the model's name?")
        if status >= 500 or status in (408, 425) or status < 400:
            return RequestLost(message, status=status)
        # 413: the body itself is too large for a proxy; a smaller image is the remedy there as well.
        return RequestRefused(message, status=status, too_long=status == 413 or complaint.too_long)

    def _redirected(self, location: str) -> ServerError:
        target = urlsplit(location)
        place = f"{target.scheme}://{target.netloc}{target.path}" if target.netloc else target.path
        return self.unusable(f"sends requests on to {place or 'elsewhere'}", "Give the URL of the server itself.")
