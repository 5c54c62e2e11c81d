"""The settings of reading pages by their regions."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from llm_ocr.settings.groups import COUNT, FILE, FRACTION, MODELS, NAME, Group
from llm_ocr.settings.model_groups import LABELS

#: `cpu`, `cuda`, or one of several: `cuda:1`.
DEVICE = Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")]


class LayoutSettings(Group):
    """Pages by their regions (--layout-first): a detector finds them, the model reads each by itself."""

    ENGINES: ClassVar[tuple[str, ...]] = MODELS

    layout_first: Literal["auto", "always", "never"] = Field(
        "auto",
        description="auto: where that is the model's way (glm-ocr, paddleocr-vl) and a detector is installed; always: "
        "with any model that has prompts for regions, by the embedded engine's layout where no detector is installed",
    )
    region_task: LABELS = Field(
        (),
        description="what is done with regions of a label: text, table, formula or chart (read so), skip (kept as a "
        "figure) or abandon (left out); for example footer=text (repeat it for more)",
        json_schema_extra={"metavar": "LABEL=TASK"},
    )
    detector: NAME | None = Field(
        None,
        description="Hugging Face id or folder of the detector, or `embedded` "
        "(default: PaddlePaddle/PP-DocLayoutV3_safetensors)",
        json_schema_extra={"metavar": "NAME"},
    )
    detector_revision: NAME | None = Field(None, description="its commit or tag (default: the newest, recorded)")
    detector_threshold: FRACTION = Field(0.3, description="regions of which it is less sure are left out")
    detector_device: DEVICE = Field(
        "auto", description="where it runs: cpu, cuda, cuda:1 ... (auto: a GPU if there is one)"
    )
    detector_workers: COUNT | None = Field(None, description="its processes on the CPU (default: one per core)")
    detector_python: FILE | None = Field(
        None,
        description="a Python that has torch and transformers, where this one has not (such as vLLM's)",
        json_schema_extra={"metavar": "PROGRAM"},
    )
