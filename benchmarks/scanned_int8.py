"""The two models with weights and activations as 8-bit integers, made here from those of the rapidocr wheel.

Needs the package `onnx`, which nothing else of the project needs: without it these variants are not run.
"""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scanned_pages import Given

from llm_ocr.engines.embedded.ocr.models import open_session, require_models

#: Pages and crops of a page that show the range of values; they are among those read later, which favours int8.
_PAGES, _CROPS = 4, 12
#: Scales by channel need it; the wheel's models are older.
_OPSET = 13


def make(folder: Path, pages: Sequence[Given]) -> tuple[dict[str, Path], dict[str, Path], dict[str, str]]:
    """Static and dynamic models by part ("det", "rec"), and why one is not there."""
    missing = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        return {}, {}, {"int8": f"needs the package {', '.join(missing)}"}
    static: dict[str, Path] = {}
    dynamic: dict[str, Path] = {}
    why_not: dict[str, str] = {}
    files = require_models()
    seen = _Seen(pages[-_PAGES:])
    for part, model, inputs in (("det", files.detector, seen.tiles), ("rec", files.recogniser, seen.lines)):
        try:
            prepared = _prepared(model, folder / f"{part}.onnx")
            for kind, path in (
                (static, _static(prepared, folder / f"{part}-static.onnx", inputs)),
                (dynamic, _dynamic(prepared, folder / f"{part}-dynamic.onnx")),
            ):
                open_session(path)
                kind[part] = path
        except Exception as error:  # noqa: BLE001 - the quantiser raises what it likes; a result to report
            why_not[f"int8 of {part}"] = f"{type(error).__name__}: {error}"[:300]
    return static, dynamic, why_not


class _Seen:
    """What the networks are given on some pages."""

    def __init__(self, pages: Sequence[Given]) -> None:
        from llm_ocr.engines.embedded.ocr.page import PageReading

        reading: Any = PageReading()
        self.tiles: list[Any] = []
        self.lines: list[Any] = []
        reading._detector._session = _Listening(reading._detector._session, self.tiles)
        reading.reader._session = _Listening(reading.reader._session, self.lines)
        for index, page in enumerate(pages, 1):
            reading.read(page.pixels())
            del self.lines[_CROPS * index :]


class _Listening:
    def __init__(self, session: Any, heard: list[Any]) -> None:
        self._session, self._heard = session, heard

    def get_inputs(self) -> Any:
        return self._session.get_inputs()

    def run(self, outputs: Any, inputs: Mapping[str, Any]) -> Any:
        self._heard.append(next(iter(inputs.values())))
        return self._session.run(outputs, inputs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def _prepared(model: Path, path: Path) -> Path:
    import onnx.version_converter
    from onnxruntime.quantization.shape_inference import quant_pre_process

    newer = path.with_name(f"{path.stem}-{_OPSET}.onnx")
    onnx.save(onnx.version_converter.convert_version(onnx.load(str(model)), _OPSET), str(newer))
    quant_pre_process(str(newer), str(path), skip_symbolic_shape=True)
    return path


def _static(model: Path, path: Path, inputs: Sequence[Any]) -> Path:
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    options = {"per_channel": True, "activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize_static(str(model), str(path), _Inputs(inputs), quant_format=QuantFormat.QDQ, **options)
    return path


def _dynamic(model: Path, path: Path) -> Path:
    """Matrices only: convolutions with ranges found while running have no fast kernel."""
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(str(model), str(path), op_types_to_quantize=["MatMul", "Gemm"], per_channel=True)
    return path


class _Inputs:
    """What `quantize_static` reads."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        self._left: Iterator[Any] = iter(inputs)

    def get_next(self) -> dict[str, Any] | None:
        values = next(self._left, None)
        return None if values is None else {"x": values}
