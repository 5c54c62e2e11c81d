"""Images that Google builds: what is packed, what is sent, and what a failure says."""

import gzip
import io
import json
import tarfile

import pytest

from llm_ocr.errors import LaunchError, UsageError
from llm_ocr.launch.cloud_run.archive import archive, with_arguments
from llm_ocr.launch.cloud_run.build import Build, carry_out, main
from llm_ocr.testing.fake_gcs import running as gcs_running
from llm_ocr.testing.fake_run import running

IMAGE = "us-central1-docker.pkg.dev/my-project/llm-ocr/llm-ocr-cpu:1"
ARGUMENTS = {"PYTHON_IMAGE": "python:3.12-slim"}


@pytest.fixture
def checkout(tmp_path):
    """A small one."""
    for name in ("pyproject.toml", "README.md", "LICENSE", "examples/a.pdf", "llm_ocr/x.py", "docker/install.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "llm_ocr/__pycache__").mkdir()
    (tmp_path / "llm_ocr/__pycache__/x.pyc").write_text("")
    (tmp_path / "examples/.env").write_text("TOKEN=geheimnis")
    (tmp_path / "docker/cpu.Dockerfile").write_text("ARG PYTHON_IMAGE\n\nFROM ${PYTHON_IMAGE}\nARG PYTHON_IMAGE\n")
    return tmp_path


def test_the_archive_holds_what_the_dockerfile_copies_and_its_arguments(checkout):
    packed = archive(checkout, "docker/cpu.Dockerfile", ARGUMENTS)
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as tar:
        names = tar.getnames()
        dockerfile = tar.extractfile("Dockerfile").read().decode()
    assert names == [
        *("Dockerfile", "pyproject.toml", "README.md", "LICENSE", "examples/a.pdf", "llm_ocr/x.py", "docker/install.py")
    ]
    assert dockerfile == 'ARG PYTHON_IMAGE="python:3.12-slim"\n\nFROM ${PYTHON_IMAGE}\nARG PYTHON_IMAGE\n'
    assert archive(checkout, "docker/cpu.Dockerfile", ARGUMENTS) == packed


def test_the_dockerfiles_of_the_project_can_be_built_so(repository):
    digest = "vllm/vllm-openai:v1@sha256:" + "0" * 64
    for kind, arguments in (("gpu", {"VLLM_BASE_IMAGE": digest, "PROFILES": "glm-ocr"}), ("cpu", ARGUMENTS)):
        name, packed = Build(kind, IMAGE, "gs://b", arguments, repository).packed()
        assert name.startswith(f"llm-ocr-{kind}-")
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as tar:
            files = set(tar.getnames())
            copied = [
                word
                for row in tar.extractfile("Dockerfile").read().decode().splitlines()
                if row.startswith("COPY ") and "--from" not in row
                for word in row.split()[1:-1]
            ]
        assert copied
        for one in copied:
            assert one in files or any(file.startswith(f"{one}/") for file in files), one


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs --build-arg PYTHON_IMAGE=VALUE"),
        ({**ARGUMENTS, "PYTHON": "x"}, "has no such argument"),
        ({"PYTHON_IMAGE": 'x"\nRUN curl'}, "characters that an image's name does not have"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_sent(checkout, arguments, message):
    with pytest.raises(UsageError, match=message):
        archive(checkout, "docker/cpu.Dockerfile", arguments)


def test_values_stay_values():
    assert with_arguments('ARG A="x"\nFROM y\n', {"A": "a b"}) == 'ARG A="a b"\nFROM y\n'


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--image", "python:3.12", "--source", "gs://b/x"), "must be an image in Artifact Registry"),
        (("--image", IMAGE, "--source", "s3://b/x"), "must be gs://BUCKET/PREFIX"),
        (("--image", IMAGE, "--source", "gs://b/x", "--context", "nowhere"), "is not there"),
    ],
)
def test_wrong_usage_is_said(checkout, capsys, words, message):
    code = main(["cpu", "--build-arg", "PYTHON_IMAGE=x", "--context", str(checkout), *words, "--dry-run"])
    assert (code, message in capsys.readouterr().err) == (2, True)


def test_a_dry_run_shows_what_would_be_sent(checkout, capsys):
    words = ("--image", IMAGE, "--source", "gs://b/build", "--build-arg", "PYTHON_IMAGE=x", "--context", str(checkout))
    assert main(["cpu", *words, "--dry-run"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["body"]["parent"] == "projects/my-project/locations/us-central1"
    assert shown["body"]["imageUri"] == IMAGE


@pytest.fixture
def google(monkeypatch):
    pytest.importorskip("google.cloud.run_v2")
    pytest.importorskip("google.cloud.storage")
    with gcs_running("bucket") as gcs, running() as run:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url)
        run.account.images = set()
        yield run


def test_the_image_is_built_from_the_archive(google, checkout):
    from google.cloud import storage

    lines: list[str] = []
    build = Build("cpu", IMAGE, "gs://bucket/build/", ARGUMENTS, checkout)
    carry_out(build, google.url, lines.append, every=0.01)
    name, packed = build.packed()
    (sent,) = google.api.builds
    assert sent["storageSource"] == {"bucket": "bucket", "object": f"build/{name}"}
    assert storage.Client.create_anonymous_client().bucket("bucket").blob(f"build/{name}").download_as_bytes() == packed
    assert google.account.images == {IMAGE}
    assert lines[-1] == f"built and pushed: {IMAGE}"


def test_a_build_that_fails_says_why_and_where_its_log_is(google, checkout):
    google.account.build_error = "Build failed; check build logs for details"
    with pytest.raises(LaunchError, match="check build logs") as raised:
        carry_out(Build("cpu", IMAGE, "gs://bucket/build", ARGUMENTS, checkout), google.url, lambda _: None, every=0.01)
    assert "https://console.example/builds/build-1" in raised.value.hint
