"""A stand-in for the Hugging Face Hub: a real HTTP server on loopback, with faults on demand.

It speaks what huggingface_hub uses of the Hub's API for dataset (and other) repositories and for storage buckets:
making and listing them, commits of small and large files, conditions on the parent commit, downloads with ranges, the
batches of buckets, accounts with read and write tokens, private and gated repositories, a quota of commits, and jobs,
which run as processes of this machine. Everything is in memory, but for the content of buckets, which hf_xet writes to
a temporary folder.

Run it with `python -m tests.fakes.hub`, which prints the variables to set. In tests:
`with running() as (hub, environment): ...`. huggingface_hub reads HF_ENDPOINT when it is imported: give programs the
environment, or `HfApi(endpoint=hub.url, token=TOKEN)` in the same process.

Its own paths: POST /_fake/faults adds a fault (the fields of `faults.Fault`), GET lists them, DELETE clears them;
GET /_fake/requests counts what was asked for.
"""

from tests.fakes.hub.answers import TOKEN, Account
from tests.fakes.hub.jobs import Mishap
from tests.fakes.hub.server import FakeHub, Fault, How, running

__all__ = ["TOKEN", "Account", "FakeHub", "Fault", "How", "Mishap", "running"]
