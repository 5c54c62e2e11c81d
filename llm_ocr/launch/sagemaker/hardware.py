"""The machines of SageMaker: GPUs, disks of their own, and which of them only training jobs may have."""

from collections.abc import Mapping
from types import MappingProxyType

#: Size -> GPUs, in the families where it goes by the size (EC2's DescribeInstanceTypes, as moto 5.2.5 ships it).
_ONE_TO_EIGHT = MappingProxyType(
    {
        **dict.fromkeys(("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge"), 1),
        **{"12xlarge": 4, "24xlarge": 4, "48xlarge": 8},
    }
)
_BLACKWELL = MappingProxyType(
    {**dict.fromkeys(("2xlarge", "4xlarge", "8xlarge"), 1), **{"12xlarge": 2, "24xlarge": 4, "48xlarge": 8}}
)

#: Family -> size -> GPUs. T4; A10G; L4; L40S; RTX PRO 4500 and 6000; V100; A100; H100, H200; B200, B300.
_GPUS: Mapping[str, Mapping[str, int]] = {
    "g4dn": {size: gpus for size, gpus in _ONE_TO_EIGHT.items() if size not in ("24xlarge", "48xlarge")},
    **dict.fromkeys(("g5", "g6", "g6e"), _ONE_TO_EIGHT),
    **dict.fromkeys(("g7", "g7e"), _BLACKWELL),
    **{family: {"24xlarge": 8} for family in ("p3dn", "p4d", "p4de")},
    "p5": {"4xlarge": 1, "48xlarge": 8},
    **{family: {"48xlarge": 8} for family in ("p5e", "p5en", "p6-b200", "p6-b300")},
}
#: Accelerated, and not counted here: what is in them is not known, or is no GPU of NVIDIA's.
_OTHERS = ("p2", "p3", "p6e", "trn", "inf", "dl")

#: Families whose machines have disks of their own, which take no key (the same source).
_LOCAL_DISKS = frozenset({*_GPUS, "r5d"})

#: What only CreateTrainingJob names (botocore 1.44.5).
_TRAINING_FAMILIES = frozenset({"p3dn", "p4d", "p4de", "p5e", "p5en", "c5n"})
_TRAINING_BEGINNINGS = ("p6", "trn")


def gpus_of(hardware: str) -> int | None:
    """GPUs of one machine; None for a name that is not known here."""
    family, size = _parts(hardware)
    if not size:
        return None
    if family in _GPUS:
        return _GPUS[family].get(size)
    return None if family.startswith(_OTHERS) else 0


def has_local_disks(hardware: str) -> bool:
    """Whether its disks are its own, encrypted by hardware."""
    return _parts(hardware)[0] in _LOCAL_DISKS


def needs_training(hardware: str) -> bool:
    """Whether only training jobs may have it."""
    family, size = _parts(hardware)
    return (
        family in _TRAINING_FAMILIES or family.startswith(_TRAINING_BEGINNINGS) or (family, size) == ("p5", "48xlarge")
    )


def _parts(hardware: str) -> tuple[str, str]:
    """Family and size of `ml.FAMILY.SIZE`; empty for what is none."""
    parts = hardware.split(".")
    return (parts[1], parts[2]) if len(parts) == 3 and parts[0] == "ml" else ("", "")
