"""Which column has the images, and how they stand in it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llm_ocr.errors import UsageError


@dataclass(frozen=True, slots=True)
class ImageColumn:
    """`many`: each row has a list of images."""

    name: str
    many: bool


def image_column(schema: Any, features: Mapping[str, Any] | None, wanted: str | None, where: str) -> ImageColumn:
    """The column that is wanted, or the only one with images.

    `schema` is the Arrow schema of a data file; `features` are those that the dataset's card declares, if it does.
    Raises UsageError that names what there is.
    """
    several = {name for name, count in Counter(schema.names).items() if count > 1}  # Arrow gives neither by its name
    shapes = {field.name: shape for field in schema if field.name not in several and (shape := _shape(field.type))}
    likely = _with_images(schema, features, shapes)
    if wanted is not None:
        if wanted not in schema.names:
            raise UsageError(f"--image-column {wanted}: {where} has no such column", hint=_there_is(schema, likely))
        if wanted in several:
            hint = _there_is(schema, likely)
            raise UsageError(f"--image-column {wanted}: {where} has several columns of that name", hint=hint)
        if wanted not in shapes:
            kind = schema.field(wanted).type
            raise UsageError(f"--image-column {wanted}: it holds {kind}, no images", hint=_there_is(schema, likely))
        return ImageColumn(wanted, shapes[wanted] == "many")
    if len(likely) == 1:
        return ImageColumn(likely[0], shapes[likely[0]] == "many")
    if likely:
        raise UsageError(f"{where} has several columns with images: {', '.join(likely)}", hint="Say --image-column.")
    raise UsageError(f"{where} has no column with images", hint=_there_is(schema, likely))


def _there_is(schema: Any, likely: list[str]) -> str:
    if likely:
        return f"Columns with images: {', '.join(likely)}."
    return f"Columns: {', '.join(schema.names)}. Bytes of images can be named with --image-column."


def _with_images(schema: Any, features: Mapping[str, Any] | None, shapes: Mapping[str, str]) -> list[str]:
    """By what the dataset declares; where it declares nothing of a column, by what its values look like."""
    declared = {**_stored_features(schema), **(features or {})}
    found = []
    for name in shapes:
        if name in declared:
            if _is_image(declared[name]):
                found.append(name)
        elif _looks_like_images(schema.field(name).type):
            found.append(name)
    return found


def _stored_features(schema: Any) -> Mapping[str, Any]:
    """What `datasets` wrote into the file about its columns."""
    if b"huggingface" not in (schema.metadata or {}):
        return {}
    from datasets import Features

    try:
        return dict(Features.from_arrow_schema(schema))
    except (TypeError, ValueError, KeyError, AttributeError):
        return {}  # of another release: the values tell


def _is_image(feature: Any) -> bool:
    from datasets import Image

    if isinstance(feature, list):
        return len(feature) == 1 and _is_image(feature[0])
    if isinstance(feature, Image):
        return True
    inner = getattr(feature, "feature", None)  # List, LargeList and Sequence
    return inner is not None and not isinstance(inner, Mapping) and _is_image(inner)


def _looks_like_images(kind: Any) -> bool:
    import pyarrow as pa

    inner = kind.value_type if _is_list(kind) else kind
    return bool(pa.types.is_struct(inner))


def _shape(kind: Any) -> str:
    """`one`, `many`, or empty for what cannot be images: a struct with bytes, or bytes alone, is an image."""
    import pyarrow as pa

    if _is_list(kind):
        return "many" if _shape(kind.value_type) == "one" else ""
    if pa.types.is_struct(kind):
        place = kind.get_field_index("bytes")
        return "one" if place >= 0 and _is_bytes(kind.field(place).type) else ""
    return "one" if _is_bytes(kind) else ""


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_bytes(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))
