"""How many files a run will write, where a store holds only so many."""

from llm_ocr.errors import WorkspaceError

#: When all stages are done: data and marker of each, the dataset file, and the note on who wrote the views.
_OF_A_UNIT = 8


def files_of(units: int, documents: int) -> int:
    """Files of a finished run, those of figures aside: nobody knows them before."""
    return _OF_A_UNIT * units + documents


def need_room(url: str, most: int, *, units: int, documents: int) -> None:
    """Raise `WorkspaceError` when a run of such a plan would write more than `most` files there."""
    needed = files_of(units, documents)
    if needed > most:
        raise WorkspaceError(
            f"{documents:,} documents in {units:,} units would become {needed:,} files or more; {url} should hold no "
            f"more than {most:,}",
            hint="Use a bucket (-w hf://buckets/NS/NAME/PREFIX, s3://… or gs://…), or fewer documents; larger units "
            "(--pages-per-unit) make fewer files.",
        )
