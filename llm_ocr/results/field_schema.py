"""Schema of the fields that a user asks for: its check, the form of an answer, and the values of an answer. Pure.

the user's schema     nodes: objects, arrays, and fields (everything else)
form of an answer     {"quote": string, "value": the user's schema or null} in place of each field
answer that was read  `Found`, or None, in place of each field
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from llm_ocr.errors import MissingExtra, UsageError
from llm_ocr.types import Box

#: Fields of a schema; an answer with more of them exceeds the answers of most models.
MOST_FIELDS = 200
#: Parts of a schema after its references are replaced. Nested references can multiply without a recursion.
_MOST_PARTS = 20_000
_DEEPEST = 30

_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMAS = frozenset(
    {"items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else", "unevaluatedProperties"}
)
#: Left out: names that repeat the property's, and values that a model would repeat.
_LEFT_OUT = frozenset({"$defs", "definitions", "$schema", "$id", "$comment", "title", "default", "examples"})
#: Parts of a value's schema that servers enforce while they write an answer. All parts are checked in the answer.
_ENFORCED = frozenset({"type", "enum", "const", "properties", "required", "items", "anyOf", "prefixItems"})


@dataclass(frozen=True, slots=True)
class Found:
    """Value of a field with its quote, and the place of the quote.

    `page` is from 1. `box` is relative; None if the page's blocks have no places. `quoted` is whether the
    verified text of the page contains the quote, and the quote states the value. `others` are other values with a true
    quote. `named` is whether the schema names the possible values, so that a quote may state them in other words.
    """

    value: Any
    quote: str = ""
    page: int | None = None
    box: Box | None = None
    quoted: bool = False
    others: tuple["Found", ...] = ()
    named: bool = False


#: Answer in the form of a node: a dict, a list, `Found`, or None for a field without a value.
Tree = Any


@dataclass(frozen=True, slots=True)
class Node:
    """Part of a schema without references. `nullable`: null is a value of it."""

    kind: Literal["object", "array", "field"]
    schema: Mapping[str, Any]
    nullable: bool = False
    members: Mapping[str, "Node"] = field(default_factory=dict)
    items: "Node | None" = None

    def form(self, *, enforced: bool) -> dict[str, Any]:
        """Return the schema of an answer.

        Args:
            enforced: Whether it is for a server that enforces it, which may not know all parts of JSON Schema.
        """
        about = {"description": self.schema["description"]} if "description" in self.schema and not enforced else {}
        if self.kind == "object":
            members = {name: node.form(enforced=enforced) for name, node in self.members.items()}
            return {**about, "type": "object", "properties": members, **_closed(members)}
        if self.items is not None:
            return {**about, "type": "array", "items": self.items.form(enforced=enforced)}
        value = _enforced(self.schema) if enforced else {k: v for k, v in self.schema.items() if k not in about}
        pair = {"quote": {"type": "string"}, "value": {"anyOf": [value, {"type": "null"}]}}
        return {**about, "type": "object", "properties": pair, **_closed(pair)}

    def read(self, answer: Any, faults: list[str], path: str = "") -> Tree:
        """Return the values of an answer. `faults` receives what the schema does not allow, which is left out."""
        if self.kind == "object":
            if not isinstance(answer, dict):
                faults.extend([f"{path or 'the answer'} is no object"] if answer is not None or not path else [])
                answer = {}
            members = self.members.items()
            return {name: node.read(answer.get(name), faults, below(path, name)) for name, node in members}
        if self.items is not None:
            if not isinstance(answer, list):
                faults.extend([f"{path} is no list"] if answer is not None else [])
                answer = []
            found = [self.items.read(one, faults, f"{path}[{number}]") for number, one in enumerate(answer)]
            return [one for one in found if not _is_empty(one)]
        if isinstance(answer, dict) and "value" in answer:
            value, quote = answer["value"], answer.get("quote")
        else:
            value, quote = answer, None
            faults.extend([f"{path} has no quote"] if answer is not None else [])
        if value is None or value == "":
            return None
        error = next(_validator(self.schema).iter_errors(value), None)
        if error is not None:
            faults.append(f"{path}: {error.message}")
            return None
        return Found(value, quote if isinstance(quote, str) else "", named=_names_values(self.schema))

    def values(self, tree: Tree) -> Any:
        """Return the values in the form of the user's schema.

        A field without a value is null if the schema allows null, otherwise it is left out.
        """
        if self.items is not None:
            return [self.items.values(one) for one in tree or ()]
        if self.kind == "field":
            return None if tree is None else tree.value
        found = {}
        for name, node in self.members.items():
            inner = (tree or {}).get(name)
            if not _is_empty(inner) or node.nullable or node.kind == "array":
                found[name] = None if _is_empty(inner) and node.nullable else node.values(inner)
        return found

    def fields(self, tree: Tree, path: str = "") -> Iterator[tuple[str, Found]]:
        """Yield all fields with a value in the order of the schema, each with its path, such as `items[0].price`."""
        if isinstance(tree, Found):
            yield path, tree
        elif self.items is not None:
            for number, one in enumerate(tree or ()):
                yield from self.items.fields(one, f"{path}[{number}]")
        else:
            for name, node in self.members.items():
                yield from node.fields((tree or {}).get(name), below(path, name))

    def merged(self, trees: Sequence[Tree]) -> Tree:
        """Merge the answers about consecutive passages of a document.

        A field has its first value with a true quote, otherwise its first value. Other values with a true quote are
        noted. Lists are joined. An entry that equals an entry of an earlier passage is left out; equal entries of one
        passage, such as two equal lines of an invoice, are kept. Objects are merged by name.
        """
        if self.kind == "object":
            return {
                name: node.merged([tree.get(name) for tree in trees if tree is not None])
                for name, node in self.members.items()
            }
        if self.items is not None:
            joined: list[Tree] = []
            seen: set[str] = set()
            for tree in trees:
                texts = [_text(self.items.values(one)) for one in tree or ()]
                joined += [one for one, text in zip(tree or (), texts, strict=True) if text not in seen]
                seen.update(texts)
            return joined
        found = [tree for tree in trees if tree is not None]
        if not found:
            return None
        first = next((one for one in found if one.quoted), found[0])
        others = {_text(one.value): one for one in reversed(found) if one.quoted}
        others.pop(_text(first.value), None)
        return replace(first, others=tuple(reversed(others.values())))

    def faults(self, values: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Return the required fields that a document's values lack, and what else the schema does not allow."""
        from jsonschema.exceptions import best_match

        missing, invalid = [], []
        for found in _validator(self.schema).iter_errors(values):
            error = best_match([found])  # of an optional object: what its inner schema misses
            path = ""
            for part in error.absolute_path:
                path = f"{path}[{part}]" if isinstance(part, int) else below(path, str(part))
            if error.validator == "required":
                names = [name for name in error.validator_value if name not in error.instance]
                missing += [below(path, name) for name in names]
            else:
                invalid.append(f"{path or 'the document'}: {error.message}")
        return list(dict.fromkeys(missing)), invalid


def load_schema(given: str) -> dict[str, Any]:
    """Return the JSON Schema of a setting: a file, or the JSON itself.

    Raises:
        UsageError: The file cannot be read, or contains no JSON object.
    """
    inline = given.lstrip().startswith("{")
    named = "the schema" if inline else f"the schema {given}"
    try:
        schema = json.loads(given if inline else Path(given).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else f"no JSON: {error}"
        raise UsageError(f"{named}: {why}", hint="Give a file with a JSON Schema, or its JSON.") from error
    if not isinstance(schema, dict):
        raise UsageError(f"{named}: the file contains no JSON object")
    return schema


def read_schema(given: Mapping[str, Any]) -> Node:
    """Check a JSON Schema and return its nodes.

    References to `#/$defs/...`, as pydantic writes them, are replaced.

    Args:
        given: The schema. The draft is 2020-12.

    Raises:
        UsageError: It is no JSON Schema of an object, has more than 200 fields, refers to itself, to a file, or to a
            URL, or uses a part that is not supported.
        MissingExtra: The package jsonschema is not installed.
    """
    try:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError
    except ImportError as error:
        raise MissingExtra("fields requires the package jsonschema", install="fields") from error
    schema = _References(given).replaced(given)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = "/".join(map(str, error.absolute_path))
        raise UsageError(f"the schema is invalid at {where or 'its top'}: {error.message}") from error
    root = node_of(schema)
    if root.kind != "object":
        raise UsageError(
            "the schema is not that of an object with properties",
            hint='Its top must be {"type": "object", "properties": {...}}.',
        )
    count = _count(root)
    if count > MOST_FIELDS:
        raise UsageError(
            f"the schema has {count:,} fields, and at most {MOST_FIELDS} are possible",
            hint="Split it, and run the command once per schema.",
        )
    return root


class _References:
    """Replaces the references of a schema by what they refer to."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._parts = 0

    def replaced(self, schema: Any, within: tuple[str, ...] = (), depth: int = 0) -> dict[str, Any]:
        self._parts += 1
        if self._parts > _MOST_PARTS or depth > _DEEPEST:
            raise UsageError("the schema is too large or too deeply nested", hint="Ask for fewer fields.")
        if isinstance(schema, bool):
            return {} if schema else {"not": {}}
        if not isinstance(schema, dict):
            raise UsageError(f"the schema is invalid: {str(schema)[:60]!r} is no JSON Schema")
        if unknown := {"$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor"} & schema.keys():
            raise UsageError(f"the schema uses {sorted(unknown)[0]}, which is not supported", hint="Use #/$defs/NAME.")
        found: dict[str, Any] = {}
        if "$ref" in schema:
            reference = str(schema["$ref"])
            if reference in within:
                raise UsageError(
                    f"the schema refers to itself: {reference}", hint="Write the inner levels out, as many as you need."
                )
            found = self.replaced(self._target(reference), (*within, reference), depth + 1)
        for name, value in schema.items():
            if name in _LEFT_OUT or name == "$ref":
                continue
            if name in _MAPS and isinstance(value, dict):
                found[name] = {key: self.replaced(one, within, depth + 1) for key, one in value.items()}
            elif name in _LISTS and isinstance(value, list):
                found[name] = [self.replaced(one, within, depth + 1) for one in value]
            else:
                found[name] = self.replaced(value, within, depth + 1) if name in _SCHEMAS else value
        return found

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#"):
            raise UsageError(
                f"the schema refers to {reference}, and only references within the schema are possible",
                hint="Copy that schema into $defs, and refer to #/$defs/NAME.",
            )
        target: Any = self._root
        for part in unquote(reference[1:]).split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, dict) else None
        if target is None or (reference != "#" and not reference.startswith("#/")):
            raise UsageError(f"the schema refers to {reference}, which it does not contain")
        return target


def node_of(schema: Mapping[str, Any], path: str = "") -> Node:
    """Return the node of a schema without references, such as `Node.schema` of another."""
    schema, nullable = _without_null(schema)
    if len(schema.get("allOf", ())) > 1:
        raise UsageError(f"the schema uses allOf at {path or 'its top'}, which is not supported")
    if schema.get("type", "object") == "object" and schema.get("properties"):
        members = {name: node_of(inner, below(path, name)) for name, inner in schema["properties"].items()}
        return Node("object", schema, nullable, members)
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict) and "prefixItems" not in schema:
        return Node("array", schema, nullable, items=node_of(schema["items"], f"{path}[]"))
    return Node("field", schema, nullable)


def _without_null(schema: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a schema without null as a value, and whether null was one."""
    found = dict(schema)
    nullable = None in found.get("enum", ()) or found.get("const", 0) is None or found.get("type") == "null"
    for word in ("anyOf", "oneOf", "allOf"):
        choices = [one for one in found.get(word, ()) if one.get("type") != "null"]
        if word != "allOf":
            nullable |= len(choices) < len(found.get(word, ()))
        if len(choices) == 1:
            del found[word]
            inner, also = _without_null(choices[0])
            found, nullable = {**inner, **found}, nullable or also
        elif choices and word != "allOf":  # few servers enforce oneOf
            del found[word]
            found["anyOf"] = choices
    kinds = found.get("type")
    if isinstance(kinds, list) and "null" in kinds:
        rest = [kind for kind in kinds if kind != "null"]
        found["type"], nullable = rest[0] if len(rest) == 1 else rest, True
    return found, nullable


def _count(node: Node) -> int:
    inner = [*node.members.values(), *([node.items] if node.items else [])]
    return sum(map(_count, inner)) if inner else 1


def _closed(members: Mapping[str, Any]) -> dict[str, Any]:
    return {"required": list(members), "additionalProperties": False}


def _enforced(schema: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "properties":
            found[name] = {key: _enforced(inner) for key, inner in value.items()}
        elif name in ("anyOf", "prefixItems"):
            found[name] = [_enforced(inner) for inner in value]
        elif name in _ENFORCED:
            found[name] = _enforced(value) if name == "items" else value
    return found


def _validator(schema: Mapping[str, Any]) -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)


def _names_values(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema, or one of its alternatives, lists the values of a field."""
    return "enum" in schema or "const" in schema or any(map(_names_values, schema.get("anyOf", ())))


def _is_empty(tree: Tree) -> bool:
    """Return whether a part of an answer has no value."""
    if isinstance(tree, Mapping):
        return all(map(_is_empty, tree.values()))
    return not tree if isinstance(tree, list) else tree is None


def below(path: str, name: str) -> str:
    """Return the path of a member. A name that would be mistaken for a path is quoted: `seller["name.first"]`."""
    if not name or any(mark in name for mark in '.["'):
        return f"{path}[{json.dumps(name, ensure_ascii=False)}]"
    return f"{path}.{name}" if path else name


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
