"""Before any work: the token, the right to write, the repository or bucket."""

import pytest

from llm_ocr.errors import StorageError, UsageError
from llm_ocr.storage.hf import Place, parse
from tests.fakes.hub import Account, Fault


@pytest.fixture
def tokens(making):
    """More accounts than the one that owns everything."""
    accounts = making.hub().state.accounts.by_token
    accounts["hf_reader"] = Account("tester", "read")
    accounts["hf_other"] = Account("other")
    return accounts


def test_what_is_missing_is_made_and_private(making, kind):
    name = f"tester/made-by-check-{kind}"
    making.store_at(Place(kind, name, "runs/one")).check()
    api = making.api()
    made = api.bucket_info(name) if kind == "bucket" else api.dataset_info(name)
    assert made.private


def test_what_is_there_stays_as_it_is(making, kind):
    place = making.new_place(kind, private=False)
    making.store_at(place).check()
    api = making.api()
    assert not (api.bucket_info(place.id) if kind == "bucket" else api.dataset_info(place.id)).private


def test_a_check_of_a_dataset_makes_no_commit(making):
    place = making.new_place("dataset")
    before = len(making.api().list_repo_commits(place.id, repo_type="dataset"))
    making.store_at(place).check()
    assert len(making.api().list_repo_commits(place.id, repo_type="dataset")) == before


@pytest.mark.parametrize(
    ("token", "said", "hint"),
    [
        (None, "no token", "HF_TOKEN"),
        ("hf_nobody", "the token is not valid", "hf auth login"),
        ("hf_reader", "this token lacks a permission", "a token with write permission"),
        ("hf_other", "does not exist, or this token may not read it", "hf auth whoami"),
    ],
)
def test_a_token_that_will_not_do_is_told_before_any_work(making, tokens, kind, token, said, hint):
    place = making.new_place(kind)
    with pytest.raises(StorageError) as caught:
        making.store_at(place, token).check()
    assert said in str(caught.value)
    assert place.url in str(caught.value)
    assert hint in caught.value.hint
    assert not caught.value.retryable
    assert "hf_" not in str(caught.value)


def test_what_belongs_to_others_cannot_be_made(making, kind):
    with pytest.raises(StorageError, match="does not exist, or this token may not read it"):
        making.store_at(Place(kind, "nobody/thing")).check()


def test_what_others_show_can_be_read_and_not_written(making, tokens, kind):
    place = making.new_place(kind, private=False)
    owner = making.store_at(place)
    owner.create("k", b"1")
    guest = making.store_at(place, "hf_other")
    assert guest.get("k") == b"1"
    with pytest.raises(StorageError, match="this token lacks a permission"):
        guest.check()
    with pytest.raises(StorageError, match="this token lacks a permission"):
        guest.create("new", b"1")
    assert owner.stat("new") is None


@pytest.mark.parametrize("other", ["model", "space"])
def test_a_model_or_space_is_no_dataset(making, other):
    name = f"tester/a-{other}"
    making.api().create_repo(name, repo_type=other, space_sdk="static" if other == "space" else None, exist_ok=True)
    with pytest.raises(StorageError, match=f"{name} is a {other} repository"):
        making.store_at(Place("dataset", name)).check()


def test_a_gated_dataset_says_where_to_ask(making, tokens):
    place = making.new_place("dataset", private=False)
    making.hub().state.repositories.by_id["dataset", place.id].gated = True
    with pytest.raises(StorageError, match="gated") as caught:
        making.store_at(place, "hf_other").check()
    assert f"/datasets/{place.id}" in caught.value.hint


def test_a_branch_must_be_there_and_is_then_written(making):
    main = making.new_place("dataset")
    place = Place("dataset", main.id, "p", "dev")
    with pytest.raises(StorageError, match="has no revision dev"):
        making.store_at(place).check()
    making.api().create_branch(main.id, branch="dev", repo_type="dataset")
    store = making.store_at(place)
    store.check()
    store.create("k", b"on dev")
    assert store.get("k") == b"on dev"
    assert making.store_at(Place("dataset", main.id, "p")).stat("k") is None


def test_a_commit_can_be_read_and_not_written(making):
    place = making.new_place("dataset")
    store = making.store_at(place)
    store.create("k", b"then")
    sha = making.api().dataset_info(place.id).sha
    store.put("k", b"now")
    store.flush()
    old = making.store_at(Place("dataset", place.id, place.prefix, sha))
    assert old.get("k") == b"then"
    for write in (old.check, lambda: old.put("k", b""), lambda: old.delete("k"), lambda: old.create("new", b"")):
        with pytest.raises(UsageError, match="is a commit"):
            write()


def test_a_hub_that_cannot_be_reached_is_no_missing_bucket(making, kind, monkeypatch):
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    place = making.new_place(kind)
    making.hub().faults.add(Fault(name=place.id, status=502, times=20, message="bad gateway"))
    with pytest.raises(StorageError, match="502") as caught:
        making.store_at(place).check()
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("kind", "operation"),
    [
        ("dataset", "info"),
        ("dataset", "auth_check"),
        ("dataset", "create_repo"),
        ("bucket", "bucket_info"),
        ("bucket", "create_bucket"),
    ],
)
def test_one_failure_of_the_hub_does_not_fail_a_check(making, kind, operation):
    name = f"tester/once-{operation}-{kind}"
    making.hub().faults.add(Fault(operation, "" if operation == "create_repo" else name, status=503))
    making.store_at(Place(kind, name)).check()
    assert making.hub().faults.listed() == []


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("hf://buckets/ns/name", Place("bucket", "ns/name")),
        ("hf://buckets/ns/name/", Place("bucket", "ns/name")),
        ("hf://buckets/ns/na.me-1/a/b c", Place("bucket", "ns/na.me-1", "a/b c")),
        ("hf://datasets/ns/name/a/", Place("dataset", "ns/name", "a")),
        ("hf://datasets/ns/name@dev", Place("dataset", "ns/name", "", "dev")),
        ("hf://datasets/ns/name@v1.0/a/b", Place("dataset", "ns/name", "a/b", "v1.0")),
        ("hf://datasets/ns/name@refs/pr/3/a", Place("dataset", "ns/name", "a", "refs/pr/3")),
        ("hf://datasets/ns/name@feature%2Fone/a", Place("dataset", "ns/name", "a", "feature/one")),
        ("hf://datasets/ns/name/mail@home", Place("dataset", "ns/name", "mail@home")),
    ],
)
def test_url_names_bucket_or_dataset_with_revision_and_prefix(url, place):
    assert parse(url) == place


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("hf://ns/name", "hf://buckets/ns/name (a storage bucket) or hf://datasets/ns/name (a dataset repository)"),
        ("hf://buckets/ns", "hf://buckets/NAMESPACE/NAME"),
        ("hf://buckets/ns/name@dev/a", "hf://buckets/ns/name/PREFIX"),
        ("hf://datasets/ns/name@/a", "Leave out the @"),
        ("hf://datasets/ns/na me", "letters"),
        ("hf://datasets/-ns/name", "letters"),
        ("hf://datasets/ns/na--me", "letters"),
        ("hf://datasets/ns/name/a//b", "another prefix"),
        ("hf://datasets/ns/name/../b", "another prefix"),
    ],
)
def test_what_is_no_place_says_what_to_give_instead(url, hint):
    with pytest.raises(UsageError) as caught:
        parse(url)
    assert hint in caught.value.hint


def test_paths_and_keys_are_those_below_the_prefix():
    place = Place("dataset", "ns/name", "a/b")
    assert place.path("c/d") == "a/b/c/d"
    assert place.key("a/b/c/d") == "c/d"
    assert Place("dataset", "ns/name").key("c/d") == Place("dataset", "ns/name").path("c/d") == "c/d"


def test_of_many_creators_in_one_process_one_wins(making, kind, race):
    store = making.store_at(making.new_place(kind))
    ((winner, _),) = race(lambda number: store.create("k", b"%d" % number), 12)
    assert store.get("k") == b"%d" % winner
