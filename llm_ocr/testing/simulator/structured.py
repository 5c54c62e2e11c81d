"""Answers that a request forces: one of its choices, or a small valid instance of its JSON schema."""

import json
from collections.abc import Mapping
from typing import Any

_DEEPEST = 32


def forced_text(forced: Mapping[str, Any], number: int) -> str:
    """The text for `structured_outputs` {"choice": [...]} or {"json": schema}; `number` picks among choices.

    Raises ValueError for what it does not know, as vLLM answers 400 to what it cannot compile.
    """
    if choices := forced.get("choice"):
        return str(choices[number % len(choices)])
    schema = forced.get("json")
    if isinstance(schema, str):
        schema = json.loads(schema)
    if isinstance(schema, dict):
        return json.dumps(instance(schema, schema))
    raise ValueError("structured_outputs: only choice and json are simulated")


def instance(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> Any:
    """A small value that the schema allows: required properties only, shortest arrays and strings."""
    if depth > _DEEPEST:
        raise ValueError("the JSON schema nests too deeply")
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "$ref" in schema:
        return instance(_referred(str(schema["$ref"]), root), root, depth + 1)
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return instance(schema[word][0], root, depth + 1)
    return _of_type(schema, root, depth)


def _of_type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: instance(properties.get(name, {}), root, depth + 1) for name in schema.get("required", ())}
    if kind == "array":
        return [instance(schema.get("items", {}), root, depth + 1)] * int(schema.get("minItems", 0))
    if kind == "string":
        return "text".ljust(int(schema.get("minLength", 0)), "x")[: schema.get("maxLength")]
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1 if "exclusiveMinimum" in schema else 0)
    return False if kind == "boolean" else None


def _referred(path: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for name in path.removeprefix("#").split("/")[1:]:
        found = found.get(name, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}
