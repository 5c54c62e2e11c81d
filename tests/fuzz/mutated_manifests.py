"""Manifests and lists with something wrong. Seeded."""

import json
import random
from typing import Any

from mutated_bytes import spoiled

_IDS: tuple[Any, ...] = (
    "a", "a", "b/c", "../up", "", " ", "\0", "\ud800", "é", "é", "x" * 5000, "con", ".", "\u202egnp", 0, -1, 10**30,
    1.5, True, None, [], {}, "a\nb", "😀", "/", "-rf", "00", float("nan"),
)  # fmt: skip
_PAGES: tuple[Any, ...] = (
    [1], [1, 2], [], [0], [-1], [1.0], [True], ["1"], [None], [[1]], [10**30], [2**31], [2**63], [1, 1, 1], "1", "1-",
    "-", "", "1-5,9", "5-1", "0", "1-99999999999", "9" * 5000, "1-1000000", "1-1000001", "a", "١", "1,,2", " 1 - 2 ",
    "1\n2", 1, 0, 1.5, True, {}, None, {"from": 1}, float("inf"), "999999999", list(range(1, 400)), "1-999999999",
)  # fmt: skip
_PATHS: tuple[Any, ...] = (
    "good.pdf", "good.pdf", "good.png", "./good.pdf", "none.pdf", "", " ", ".", "~nobody-of-this-name/a.pdf", "\0",
    "good.pdf\0", "a" * 300, "/a" * 3000, "\ud800.pdf", "\udcff.pdf", "file://", "file:///none", "file://[x/a.pdf",
    "file://host/a.pdf", "file:///%00", "file:///good.pdf#?%zz", "s3://", "gs://", "hf://", "http://", "https://[",
    "http://h:99999/a", "ftp://h/a", "x://y", "://", "*.pdf", "good.pdf/x", "/dev/null", "/dev/zero", "/proc/self/mem",
    "/proc/self/environ", "good\n.pdf", "\u202efdp.exe", "-rf", None, 1, [], {}, True,
    "http://user:secret-word@127.0.0.1:1/a.pdf", "CON", "good.pdf ", "[", "~root/x.pdf",
)  # fmt: skip
_KEYS = ("pdf_path", "document_id", "id", "pages", "path", "PDF_PATH", "", "pdf_path ", "extra")
_RAW = (
    "[" * 200_000, "{" * 100, '{"pdf_path":' * 5000, "null", "1", '"good.pdf"', "[]", "{}", "NaN", "nan",
    "{'pdf_path': 'a'}",
    '{"pdf_path": "good.pdf"} {"pdf_path": "good.pdf"}', '{"pdf_path": "good.pdf"', "// x", "\ufeff{}",
    "1" * 5000, "-" * 100,
    '{"pdf_path": "good.pdf", "pdf_path": "none.pdf"}', '{"pdf_path": "\\ud83d"}',
    '{"pdf_path": "good.pdf", "pages": 1e400}',
    '{"pdf_path": "good.pdf", "pages": [' + "9" * 5000 + "]}", '{"pdf_path": "' + "a" * 2_000_000 + '"}',
    "\x85", "\u2028", "\x0c",
    '{"pdf_path": "good.pdf", "document_id": ' + "1" * 4400 + "}", '{"a":' * 990 + "1" + "}" * 990,
)  # fmt: skip


def line(chance: random.Random) -> str:
    """One line of a manifest."""
    if chance.random() < 0.08:
        return chance.choice(_RAW)
    entry: dict[str, Any] = {"pdf_path": chance.choice(_PATHS)}
    if chance.random() < 0.7:
        entry["pdf_path"] = "good.pdf"
    if chance.random() < 0.3:
        entry[chance.choice(("document_id", "id"))] = chance.choice(_IDS)
    if chance.random() < 0.3:
        entry["pages"] = chance.choice(_PAGES)
    if chance.random() < 0.1:
        entry[chance.choice(_KEYS)] = chance.choice((*_PAGES, *_IDS))
    return json.dumps(entry, ensure_ascii=chance.random() < 0.7)


def manifest_case(chance: random.Random) -> tuple[str, bytes]:
    """The suffix, and the bytes of a manifest or list."""
    lines = [line(chance) for _ in range(chance.choice((1, 1, 2, 5)))]
    suffix = "jsonl"
    if chance.random() < 0.25:
        suffix, lines = "txt", [str(chance.choice(_PATHS)) for _ in range(chance.choice((1, 3, 10)))]
    data = chance.choice(("\n", "\n", "\r\n", "\r", "\n\n")).join(lines).encode("utf-8", "surrogatepass")
    data = chance.choice((b"", b"", b"\xef\xbb\xbf", b"\xff\xfe")) + data
    if chance.random() < 0.3:
        _, data = spoiled(data, chance)
    return suffix, data[:3_000_000]
