"""Errors of Azure Blob Storage, and their remedies."""

import re

from llm_ocr.errors import StorageError
from llm_ocr.storage import Advice

#: Codes of Azure for a condition that does not hold.
LOST = ("BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet")

_AGAIN = "Published results remain. Run the same command again later."
_CREDENTIALS = (
    "AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, AZURE_USE_AZURE_CLI=true after `az login`, or "
    "AZURE_CLIENT_ID, AZURE_TENANT_ID, and AZURE_CLIENT_SECRET"
)


def code_of(error: BaseException) -> str:
    """Return Azure's code for an error, such as `ContainerNotFound`; empty without one."""
    text = str(error)
    if "The specified container does not exist" in text:  # without a code if an object was to be deleted
        return "ContainerNotFound"
    found = re.search(r"<Code>(\w+)</Code>", text)
    return found[1] if found else ""


def made(error: BaseException, what: str, container: str, endpoint: str | None) -> StorageError:
    """Return the error to raise. Its message has no URL of a request, which may be signed.

    Args:
        error: Error of the client.
        what: The failed action, such as `cannot read az://c/key`.
        container: Name of the container.
        endpoint: Endpoint in the options.
    """
    text, code = str(error).partition("\n\nDebug source")[0], code_of(error)
    found, message = re.search(r"code: (\d{3})\b", text), re.search(r"<Message>([^\n<]*)", text)
    status = int(found[1]) if found else 0
    short = message[1] if message else re.sub(r"https?://\S+", "URL", text.splitlines()[0].rpartition(" - ")[2])
    reason = " ".join(filter(None, (str(status or ""), code, short.strip())))
    advice = _advice(status, code, text, reason, container, endpoint or "Azure Blob Storage")
    return StorageError(f"{what}: {advice.what}", hint=advice.hint, retryable=advice.retryable)


def _advice(status: int, code: str, text: str, reason: str, container: str, server: str) -> Advice:
    if code == "ContainerNotFound":
        hint = f"Check its spelling, or create the container: az storage container create --name {container}"
        return Advice(f"there is no container {container}", hint)
    if "token request" in text or "Invalid Access Key" in text:
        return Advice(f"no usable Azure credentials ({reason})", f"Set one of: {_CREDENTIALS}.")
    if status in (401, 403):
        hint = f"Use an account with the role Storage Blob Data Contributor on {container}. Set one of: {_CREDENTIALS}."
        return Advice(f"the Azure credentials are wrong or lack a permission ({reason})", hint)
    if status == 429 or code == "ServerBusy":
        return Advice(f"too many requests after all retries ({reason})", f"Use fewer workers. {_AGAIN}", retryable=True)
    if status == 408 or status >= 500:
        return Advice(f"{server} failed ({reason})", _AGAIN, retryable=True)
    if not status and "HTTP error" in text:
        hint = f"Check the network, the name of the account, and the endpoint. {_AGAIN}"
        return Advice(f"{server} is unreachable ({reason})", hint, retryable=True)
    return Advice(f"{server} answered: {reason}")
