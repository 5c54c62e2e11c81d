"""What the tasks of an execution wrote, from Cloud Logging."""

import json
import time
from collections.abc import Iterator
from typing import Any

from llm_ocr.errors import LaunchError
from llm_ocr.launch.cloud_run.client import Google
from llm_ocr.launch.cloud_run.errors import translated
from llm_ocr.launch.cloud_run.status import is_over

_PAGE = 1000
_INDEX = "run.googleapis.com/task_index"


def log_lines(google: Google, name: str, *, follow: bool, tail: int | None, every: float) -> Iterator[str]:
    """Lines in their order, with the task's number before each where there are many tasks; see `Launcher.logs`."""
    with translated("read the log"):
        execution = google.executions.get_execution(name=name)
    many = execution.task_count > 1
    reader = _Reader(google, name, str(execution.log_uri))
    if tail is not None:
        yield from (_line(entry, many) for entry in reversed(reader.newest(tail)))
    else:
        yield from (_line(entry, many) for entry in reader.new())
    while follow:
        # Entries arrive some seconds late: once more after the end.
        follow = not is_over(execution)
        time.sleep(every)
        yield from (_line(entry, many) for entry in reader.new())
        if follow:
            with translated("read the log"):
                execution = google.executions.get_execution(name=name)


class _Reader:
    """Remembers what it has given."""

    def __init__(self, google: Google, name: str, log_uri: str) -> None:
        _, self._project, _, region, _, job, _, execution = name.split("/")
        self._google = google
        self._log_uri = log_uri
        self._filter = " AND ".join(
            [
                'resource.type="cloud_run_job"',
                f'resource.labels.job_name="{job}"',
                f'resource.labels.location="{region}"',
                f'labels."run.googleapis.com/execution_name"="{execution}"',
            ]
        )
        self._since = ""
        self._given: set[str] = set()

    def newest(self, count: int) -> list[dict[str, Any]]:
        """The last entries, the newest first."""
        found: list[dict[str, Any]] = []
        for entry in self._entries("timestamp desc", min(count, _PAGE)):
            if len(found) == count:
                break
            found.append(entry)
        for entry in reversed(found):
            self._keep(entry)
        return found

    def new(self) -> Iterator[dict[str, Any]]:
        """The entries that were not given yet, in their order."""
        for entry in self._entries("timestamp asc", _PAGE):
            if entry.get("insertId", "") not in self._given:
                self._keep(entry)
                yield entry

    def _keep(self, entry: dict[str, Any]) -> None:
        moment = str(entry.get("timestamp", ""))
        if moment > self._since:
            self._since, self._given = moment, set()
        self._given.add(str(entry.get("insertId", "")))

    def _entries(self, order: str, size: int) -> Iterator[dict[str, Any]]:
        since = f' AND timestamp>="{self._since}"' if self._since else ""
        body: dict[str, Any] = {
            "resourceNames": [f"projects/{self._project}"],
            "filter": self._filter + since,
            "orderBy": order,
            "pageSize": size,
        }
        while True:
            answer = self._page(body)
            yield from answer.get("entries", ())
            if not answer.get("nextPageToken"):
                return
            body["pageToken"] = answer["nextPageToken"]

    def _page(self, body: dict[str, Any]) -> Any:
        try:
            return self._google.rest("POST", "logging", "v2/entries:list", "read the log", body)
        except LaunchError as error:
            where = f"Reading it needs roles/logging.viewer. It is at {self._log_uri}" if self._log_uri else error.hint
            raise LaunchError(error.args[0], hint=where) from error


def _line(entry: dict[str, Any], many: bool) -> str:
    said = entry.get("textPayload")
    if said is None:
        value = entry.get("jsonPayload") or entry.get("protoPayload") or {}
        said = value.get("message") or json.dumps(value, sort_keys=True)
    index = entry.get("labels", {}).get(_INDEX, "")
    return f"[{index}] {str(said).rstrip()}" if many and index else str(said).rstrip()
