"""Split text into parts that fit a passage: sentences, tables, code, and token counts."""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from llm_ocr.errors import MissingExtra, StorageError, UsageError

# Boundaries for cuts: between sentences, and between words. Supports any script, takes linear time, and never raises.


#: End of a sentence with its closing marks and its footnote mark. Latin marks require white space and no lowercase
#: letter after them. Marks of scripts without spaces, and of Devanagari, Arabic, and Armenian, end a sentence anywhere.
_END = re.compile(
    r"""(?:
        (?<![\s.!?…])[.!?…]++["'”’»)\]]*+(?:<sup>[^<>\n]{1,30}</sup>)?+(?=\s+[^\sa-z])
      | [。！？｡]++[」』”’）】]*+
      | [।॥؟۔։]++
    )""",
    re.VERBOSE,
)
_LOOK_BACK = 16  # characters, more than the longest abbreviation
_ABBREVIATION = re.compile(
    r"""(?:^|[\s(\[“"'])(?:
        [A-ZÀ-ÞΑ-ΩА-Я]                                                        # initials
      | [^\W\d_](?:\.[^\W\d_])+                                               # i.e, e.g, z.B, U.S
      | (?i:figs?|tabs?|eqs?|nos?|vol|secs?|ch|c|pp?|cf|vs|ca|approx|al|eds?|dr|mrs?|ms|prof|st|mt|jr|sr|inc|ltd|corp)
      | (?i:art|abs|bzw|vgl|nr|bd|hrsg|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)
    )\.$""",
    re.VERBOSE,
)
_NUMBERED = re.compile(r"(?:^|\n)[ \t]*\d{1,3}\.$")  # the marker of a list item
_WORD = re.compile(r"\S+\s*")
# Han, kana, Thai, Lao, Burmese, Khmer: no spaces between words, so cuts between any two characters are permitted
_NO_SPACES = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u3190-\ua4cf\uf900-\ufaff\uff00-\uffef]")
_CHARACTER = re.compile(rf"{_NO_SPACES.pattern}\s*|(?:(?!{_NO_SPACES.pattern})\S)+\s*")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences in order, each with its trailing white space; joined, they are the text."""
    done = 0
    for end in _END.finditer(text):
        at = end.end()
        before = text[max(0, at - _LOOK_BACK) : at] if end[0] == "." else ""
        if before and (_ABBREVIATION.search(before) or _NUMBERED.search(before)):
            continue
        while at < len(text) and text[at].isspace():
            at += 1
        yield text[done:at]
        done = at
    if done < len(text):
        yield text[done:]


def words(text: str) -> Iterator[str]:
    """Yield the words in order with their trailing white space; single characters in scripts without spaces.

    White space before the first word belongs to it: joined, the words are the text.
    """
    pattern = _CHARACTER if _NO_SPACES.search(text) else _WORD
    begin = 0
    for word in pattern.finditer(text):
        yield text[begin : word.end()]
        begin = word.end()
    if begin < len(text):
        yield text[begin:]


# Sizes of passages, and groups of text of limited size.


#: Returns the size of a text, in characters or tokens.
Measure = Callable[[str], int]


def pack(units: Sequence[str], room: int, limit: int, measure: Measure) -> Iterator[str]:
    """Join the units to groups of at most `limit`, the first group of at most `room`. Keeps all units in order.

    A unit above the limit is a group of its own. A unit that only the first group has no room for begins the second
    group, so the first may be missing.
    """
    group: list[str] = []
    total, most = 0, room
    for unit in units:
        size = measure(unit)
        if group and total + size > most:
            yield from _checked(group, most, measure)
            group, total, most = [], 0, limit
        group.append(unit)
        total += size
    yield from _checked(group, most, measure)


def _checked(group: Sequence[str], most: int, measure: Measure) -> Iterator[str]:
    """Yield the group as one text, or halved if too large: a text may have more tokens than its parts together."""
    text = "".join(group)
    if len(group) > 1 and measure(text) > most:
        middle = len(group) // 2
        yield from _checked(group[:middle], most, measure)
        yield from _checked(group[middle:], most, measure)
    elif text:
        yield text


def split_text(text: str, room: int, limit: int, measure: Measure) -> Iterator[str]:
    """Yield sentences of at most `limit`, the first of at most `room` if words permit; joined, they are the text.

    A longer sentence is cut between words, and a word is never cut.
    """
    most = room
    for sentence in sentences(text):
        if measure(sentence) <= most:
            yield sentence
        else:
            yield from pack(list(words(sentence)), most, limit, measure)
        most = limit


def split_code(text: str, room: int, limit: int, measure: Measure) -> list[str]:
    """Cut fenced code between lines, each part in its own fence; lines above the limit are cut between words."""
    opening, *body, closing = text.split("\n")
    taken = measure(f"{opening}\n\n{closing}") + 1
    least = max(limit - taken, 1)
    groups = pack(lines("\n".join(body), least, measure), max(room - taken, 1), least, measure)
    return ["\n".join((opening, group.rstrip("\n"), closing)) for group in groups]


def lines(text: str, most: int, measure: Measure) -> list[str]:
    """Return the lines, each with its newline; lines of more than `most` as words."""
    found: list[str] = []
    for line in text.split("\n"):
        found += [f"{line}\n"] if measure(line) < most else words(f"{line}\n")
    return found


# Tables above the size of a passage are cut between rows, with the header repeated in each part. No row is lost.


_TAG = re.compile(r"<(?P<close>/?)(?P<name>table|tr|thead|tbody|tfoot)\b[^<>]*>", re.IGNORECASE)
_SECTION = re.compile(r"</?(?:thead|tbody|tfoot)\b[^<>]*>", re.IGNORECASE)
_SPAN = re.compile(r"\browspan\s*=\s*[\"']?(\d{1,4})", re.IGNORECASE)
_CELL = re.compile(r"<(td|th)\b", re.IGNORECASE)
_RULE = re.compile(r"[\s|:-]*-[\s|:-]*")


@dataclass(frozen=True, slots=True)
class _Table:
    """Parts of a table. `begin` and `end` enclose each part; `first` precedes the first part's rows (HTML caption)."""

    begin: str
    first: str
    header: str
    rows: tuple[str, ...]
    end: str

    def part(self, rows: str, *, first: bool, header: bool) -> str:
        return f"{self.begin}{self.first if first else ''}{self.header if header else ''}{rows}{self.end}".strip("\n")


def split_table(text: str, room: int, limit: int, measure: Measure) -> list[str]:
    """Return parts of at most `limit`, the first part of at most `room`; a larger row is a part of its own.

    The header is repeated if header and rows fit the limit together. In HTML, the header is `<thead>`, or rows of
    `<th>` alone; in pipe tables, the lines above the rule. Rows of HTML that share a spanning cell stay together if
    they fit.
    """
    table = _html(text, limit, measure) if _TAG.match(text.lstrip()) else _pipes(text)
    if table is None or not table.rows:
        return list(pack(lines(text, limit, measure), room, limit, measure))
    frame = measure(table.begin + table.end)
    header = measure(table.header)
    repeats = header and header + frame <= limit // 2
    taken = frame + (header if repeats else 0)
    rows = table.rows if repeats or not table.header else (table.header, *table.rows)
    least = max(limit - taken, 1)
    begun = max(room - taken - measure(table.first), 1)
    parts: list[str] = []
    for group in pack(rows, begun, least, measure):
        part = table.part(group, first=not parts, header=bool(repeats))
        if repeats and parts and measure(part) > limit:  # a single row that fills a part
            part = table.part(group, first=False, header=False)
        parts.append(part)
    return parts


def _pipes(text: str) -> _Table | None:
    head, rule, *rows = text.split("\n") if text.count("\n") > 1 else ("", "")
    if "|" not in head or not _RULE.fullmatch(rule):
        return None
    return _Table("", "", f"{head}\n{rule}\n", tuple(f"{row}\n" for row in rows), "")


def _html(text: str, limit: int, measure: Measure) -> _Table | None:
    """Parse an HTML table; None without rows. An unclosed table ends with the text."""
    starts: list[int] = []
    depth = begun = ended = head = 0
    for tag in _TAG.finditer(text):
        name, close = tag["name"].lower(), bool(tag["close"])
        if name == "table":
            depth += -1 if close else 1
            begun = begun or tag.end()
            ended = tag.start() if close and not depth else ended
        elif depth == 1 and name == "tr" and not close and not ended:
            starts.append(tag.start())
        elif depth == 1 and name == "thead" and close:
            head = len(starts)
    if not starts:
        return None
    text, ended = (text, ended) if ended else (f"{text}</table>", len(text))
    rows = [_SECTION.sub("", text[at:end]) for at, end in zip(starts, [*starts[1:], ended], strict=True)]
    # Without <thead>, the header is the first rows of <th> alone.
    tags = ({cell[1].lower() for cell in _CELL.finditer(row)} for row in rows)
    head = head or next((number for number, names in enumerate(tags) if names != {"th"}), 0)
    begin, first = text[:begun], _SECTION.sub("", text[begun : starts[0]]).strip()
    return _Table(
        f"{begin}\n",
        first and f"{first}\n",
        "".join(rows[:head]),
        tuple(_tied(rows[head:], limit, measure)),
        text[ended:],
    )


def _tied(rows: Sequence[str], limit: int, measure: Measure) -> Iterator[str]:
    """Yield the rows; rows that share a cell are joined unless they are too large together."""
    group: list[str] = []
    ends = 0
    for number, row in enumerate(rows):
        if number >= ends and group:
            yield from _whole(group, limit, measure)
            group = []
        group.append(row)
        ends = max([ends, number + 1, *(number + int(span[1]) for span in _SPAN.finditer(row))])
    yield from _whole(group, limit, measure)


def _whole(group: Sequence[str], limit: int, measure: Measure) -> Sequence[str]:
    text = "".join(group)
    return [text] if len(group) > 1 and measure(text) <= limit // 2 else group


# Size of texts in tokens of a model's tokenizer.


_FILE = "tokenizer.json"
#: Number of cached counts: passages consist of texts that are measured repeatedly.
_REMEMBERED = 1024


def token_count(name: str) -> tuple[Measure, str]:
    """Return what counts the tokens of a text without special ones, and the identity of the tokenizer.

    Args:
        name: a `tokenizer.json`, its folder, or a model of the Hub (`NAMESPACE/NAME[@REVISION]`).

    Raises:
        MissingExtra: the library tokenizers is not installed.
        UsageError: the file is not a tokenizer.
        StorageError: the file could not be fetched.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtra("`tokenizer` needs the library tokenizers", install="chunks") from error
    path = _local(name) or _fetched(name)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # errors of the Rust library have no type of their own
        raise UsageError(
            f"`tokenizer={name}`: the library tokenizers cannot read {path}: {error}",
            hint=f"Give a {_FILE}, or a model of the Hub with a {_FILE}.",
        ) from error
    tokenizer.no_truncation()  # files may contain both, for the model's own input
    tokenizer.no_padding()

    @lru_cache(_REMEMBERED)
    def measure(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False))

    return measure, hashlib.sha256(tokenizer.to_str().encode()).hexdigest()


def _local(name: str) -> Path | None:
    path = Path(name).expanduser()
    if path.is_dir():
        path /= _FILE
    if path.is_file():
        return path
    if path.suffix == ".json" or name.startswith((".", "/", "~")):
        raise UsageError(f"`tokenizer={name}`: the file {path} does not exist", hint=f"Give an existing {_FILE}.")
    return None


def _fetched(name: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    model, _, revision = name.partition("@")
    try:
        return Path(hf_hub_download(model, _FILE, revision=revision or None))
    except (HFValidationError, EntryNotFoundError, HfHubHTTPError, OSError) as error:
        if isinstance(error, HFValidationError):
            raise UsageError(
                f"`tokenizer={name}` is neither a file nor the name of a model: {error}",
                hint=f"Give a {_FILE}, its folder, or a model of the Hub: NAMESPACE/NAME",
            ) from error
        if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            raise UsageError(
                f"`tokenizer={name}`: the model has no {_FILE}",
                hint=f"Give the {_FILE} of a related model.",
            ) from error
        raise StorageError(
            f"`tokenizer={name}`: cannot download the {_FILE}: {error}",
            hint=f"Check the name and the connection to the Hub, or give a {_FILE} on this machine.",
        ) from error
