"""Words of a `vllm serve` command line: which argument they are, and which of them win."""

from collections.abc import Iterable, Sequence

#: Short forms that stand for the same argument (vLLM's engine arguments).
_SHORT = {
    "-tp": "tensor-parallel-size",
    "-pp": "pipeline-parallel-size",
    "-dp": "data-parallel-size",
    "-dpl": "data-parallel-size-local",
    "-q": "quantization",
}


def argument_name(word: str) -> str | None:
    """The argument that a word names, "max-num-seqs" for `--no-max_num_seqs=8`; None when it is a value.

    vLLM takes `_` for `-`, `--name=value`, `--no-name` for switches and `--name.key value` for JSON arguments:
    all of them are the argument `name`.
    """
    if word.startswith("--") and len(word) > 2:
        name = word[2:].partition("=")[0].partition(".")[0].replace("_", "-").lower()
        return name.removeprefix("no-")
    return _SHORT.get(word.partition("=")[0])


def groups(words: Iterable[str]) -> list[list[str]]:
    """Each argument with its values. Values before the first argument stand in a group of their own."""
    found: list[list[str]] = []
    for word in words:
        if argument_name(word) is not None or not found:
            found.append([word])
        else:
            found[-1].append(word)
    return found


def overridden(ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    """Our words without the arguments that `theirs` names too, then `theirs`, untouched."""
    named = {argument_name(word) for word in theirs} - {None}
    kept = [word for group in groups(ours) if argument_name(group[0]) not in named for word in group]
    return [*kept, *theirs]


def value_of(words: Sequence[str], name: str) -> str | None:
    """The last value given to an argument, "" for a switch without one, None when it is not there."""
    value = None
    for group in groups(words):
        if argument_name(group[0]) == name:
            _, has_value, inline = group[0].partition("=")
            value = inline if has_value else " ".join(group[1:])
    return value


def number_of(words: Sequence[str], name: str) -> int | None:
    """The last whole number given to an argument; None when there is none, or it is no whole number.

    vLLM reads `8k` as 8,000 and `8K` as 8,192 for counts of tokens.
    """
    value = value_of(words, name) or ""
    scale = {"k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}.get(value[-1:], 0)
    digits = value[:-1] if scale else value
    try:
        return int(float(digits) * scale) if scale else int(digits)
    except ValueError:
        return None
