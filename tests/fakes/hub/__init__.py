"""Replacement of the Hugging Face Hub: a real HTTP server on loopback, with faults on demand.

The server implements the part of the Hub's API that huggingface_hub uses for dataset (and other) repositories and for
storage buckets. It supports creation and listing, commits of small and large files, conditions on the parent commit,
downloads with ranges, and the batches of buckets. It also supports accounts with read and write tokens, private and
gated repositories, a quota of commits, and jobs, which run as processes of this machine. Data is in memory, except the
content of buckets, which hf_xet writes to a temporary folder.

In tests: `with running() as (hub, environment): ...`. huggingface_hub reads HF_ENDPOINT when it is imported: give
programs the environment, or use `HfApi(endpoint=hub.url, token=TOKEN)` in the same process.
"""

from tests.fakes.hub.answers import TOKEN, Account
from tests.fakes.hub.jobs import Mishap
from tests.fakes.hub.server import FakeHub, Fault, How, running

__all__ = ["TOKEN", "Account", "FakeHub", "Fault", "How", "Mishap", "running"]
