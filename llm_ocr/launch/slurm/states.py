"""What Slurm says of an array's tasks: squeue knows those of now, sacct those of the last weeks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from llm_ocr.errors import LaunchError
from llm_ocr.launch import Job, JobStatus, State
from llm_ocr.launch.programs import run_program

STATES: Mapping[str, State] = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED"), State.QUEUED),
    **dict.fromkeys(("RESV_DEL_HOLD", "SPECIAL_EXIT"), State.QUEUED),
    **dict.fromkeys(("RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "SUSPENDED", "STOPPED"), State.RUNNING),
    "RESIZING": State.RUNNING,
    "COMPLETED": State.SUCCEEDED,
    **dict.fromkeys(("CANCELLED", "REVOKED"), State.CANCELLED),
    **dict.fromkeys(("TIMEOUT", "DEADLINE"), State.TIMED_OUT),
    "PREEMPTED": State.PREEMPTED,
    **dict.fromkeys(("FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY"), State.FAILED),
}
#: The stage's own exit code after SIGTERM; it gets one 120 s before the limit, or a quarter of a short one.
_STOPPED, _BEFORE = "4:0", 200
_FIELDS = ("JobID", "State", "ExitCode", "Start", "End", "ElapsedRaw", "TimelimitRaw")


@dataclass(frozen=True, slots=True)
class Row:
    """One task. `state` and `exit_code` (`1:0`, code and signal) in Slurm's words; times in seconds since 1970."""

    id: str
    state: str
    exit_code: str = ""
    started: float | None = None
    ended: float | None = None
    seconds: float | None = None
    limit: float | None = None  # seconds
    why: str = ""  # why it waits

    @property
    def array(self) -> str:
        return self.id.partition("_")[0]


def known_tasks(names: Sequence[str], cluster: str) -> list[Row]:
    """All tasks of jobs of these names; sacct's word counts where it has one that is final."""
    rows = {row.id: row for row in _queue(names, cluster)}
    for row in _accounts(names, cluster):
        if row.id not in rows or STATES.get(row.state, State.RUNNING).over:
            rows[row.id] = row
    return [row for row in rows.values() if row.id.rpartition("_")[2].isdigit()]


def task_status(job: Job, row: Row | None, last: str) -> JobStatus:
    """The status of a task; `last` are the last words of its log."""
    if row is None:
        return JobStatus(job, State.FAILED, "Slurm knows nothing of it (any more)")
    state = STATES.get(row.state, State.FAILED if row.ended else State.RUNNING)
    if row.state == "FAILED" and row.exit_code == _STOPPED and _was_late(row):
        state = State.TIMED_OUT
    reason = "" if state in (State.SUCCEEDED, State.RUNNING) else row.why
    if state.over and state is not State.SUCCEEDED:
        code = f", exit code {row.exit_code.partition(':')[0]}" if row.state == "FAILED" else ""
        reason = f"{row.state}{code}{f': {last}' if last else ''}"
    elif row.state not in STATES:
        reason = row.state
    return JobStatus(job, state, reason, row.started, row.ended if state.over else None, row.seconds)


def _was_late(row: Row) -> bool:
    return row.limit is not None and row.seconds is not None and row.seconds >= max(row.limit - _BEFORE, row.limit / 2)


def _queue(names: Sequence[str], cluster: str) -> Iterator[Row]:
    words = ["squeue", "--noheader", "--array", "--states=all", f"--name={','.join(names)}", "--format=%i|%T|%r"]
    for line in _ask(words, cluster):
        task, state, why = line.split("|", 2)
        yield Row(task, state, why="" if why == "None" else why)


def _accounts(names: Sequence[str], cluster: str) -> Iterator[Row]:
    fields = ",".join(_FIELDS)
    words = ["sacct", "--noheader", "--parsable2", "--allocations", "--starttime=now-30days"]
    try:
        lines = list(_ask([*words, f"--name={','.join(names)}", f"--format={fields}"], cluster))
    except LaunchError as error:
        if "disabled" in str(error):  # a cluster without accounts: squeue is all there is
            return
        raise
    for line in lines:
        task, state, code, start, end, seconds, limit = line.split("|")
        minutes = float(limit) if limit.isdigit() else None
        yield Row(
            task,
            state.split()[0],  # CANCELLED by 1000
            code,
            _moment(start),
            _moment(end),
            float(seconds) if seconds.isdigit() else None,
            None if minutes is None else minutes * 60,
        )


def _moment(text: str) -> float | None:
    """Local time, as Slurm writes it; `Unknown` and `None` for what has not happened."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _ask(words: list[str], cluster: str) -> Iterator[str]:
    on = [f"--clusters={cluster}"] if cluster else []
    text = run_program([*words, *on], absent="Ask from a login node of the cluster.")
    # With --clusters, squeue begins with a line that names the cluster.
    return (line.strip() for line in text.splitlines() if "|" in line)
