"""A sample of the documents found, the same whatever order they come in."""

import hashlib
import heapq
from collections.abc import Iterable, Iterator

from llm_ocr.documents.sources import SourceDocument


def sampled(documents: Iterable[SourceDocument], count: int, seed: int) -> Iterator[SourceDocument]:
    """`count` of the documents, each as likely as any other, in the order in which they came.

    Those of the smallest keyed hash are taken: a larger sample with the same seed holds the smaller one. All documents
    are listed before the first one is given; in memory are `count` of them.
    """
    chosen: list[tuple[int, int, SourceDocument]] = []  # a heap: the largest hash first
    for place, document in enumerate(documents):
        entry = (-_hash(document, seed), -place, document)
        if len(chosen) < count:
            heapq.heappush(chosen, entry)
        elif entry[:2] > chosen[0][:2]:
            heapq.heapreplace(chosen, entry)
    for _, _, document in sorted(chosen, key=lambda entry: -entry[1]):
        yield document


def _hash(document: SourceDocument, seed: int) -> int:
    """By id, or by path below the root, which another machine shares; those with one name are told apart by the whole.

    The version is not in it: a local file would have to be read for it.
    """
    key = seed.to_bytes((seed.bit_length() + 7) // 8 or 1)[-64:]
    parts = (document.document_id or document.relative, document.source)
    digests = (
        hashlib.blake2b(part.encode("utf-8", "surrogatepass"), digest_size=16, key=key).digest() for part in parts
    )
    return int.from_bytes(b"".join(digests))
