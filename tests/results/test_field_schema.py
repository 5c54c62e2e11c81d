"""The schema of fields: what is refused before anything is asked, what a model is asked for, and how answers merge."""

import datetime

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from llm_ocr.errors import UsageError
from llm_ocr.results.field_schema import Found, load_schema, read_schema


class Line(BaseModel):
    name: str
    price: float | None = None


class Company(BaseModel):
    name: str
    vat: str | None = None


class Invoice(BaseModel):
    number: str = Field(pattern=r"^\d+$", description="as printed")
    date: datetime.date | None = None
    seller: Company
    buyer: Company | None = None
    lines: list[Line] = []


def said(value, quote="q"):
    return {"quote": quote, "value": value}


def read(schema, answer):
    faults = []
    return schema.read(answer, faults), faults


INVOICE = read_schema(Invoice.model_json_schema())
ANSWER = {
    "number": said("17"),
    "date": said("2026-11-27"),
    "seller": {"name": said("Finch"), "vat": said(None, "")},
    "buyer": {"name": said(None, ""), "vat": said(None, "")},
    "lines": [{"name": said("Gauge"), "price": said(38.0)}],
}


def test_a_pydantic_model_gives_values_that_it_accepts():
    tree, faults = read(INVOICE, ANSWER)
    assert faults == []
    values = INVOICE.values(tree)
    assert Invoice.model_validate(values) == Invoice(
        number="17", date="2026-11-27", seller={"name": "Finch"}, lines=[{"name": "Gauge", "price": 38.0}]
    )
    assert values["buyer"] is None
    assert INVOICE.faults(values) == ([], [])


def test_the_form_asks_for_quote_and_value_of_each_field():
    for enforced in (True, False):
        form = INVOICE.form(enforced=enforced)
        Draft202012Validator.check_schema(form)
        assert Draft202012Validator(form).is_valid(ANSWER)
        assert list(form["properties"]["number"]["properties"]) == ["quote", "value"]
        assert "$ref" not in str(form)
    assert "pattern" in str(INVOICE.form(enforced=False)) and "as printed" in str(INVOICE.form(enforced=False))
    assert "pattern" not in str(INVOICE.form(enforced=True))


def test_what_the_schema_does_not_allow_is_left_out():
    bad = {**ANSWER, "number": said("A-17"), "date": said("14 September"), "lines": {}, "seller": "Finch"}
    tree, faults = read(INVOICE, bad)
    assert tree["number"] is None and tree["date"] is None and tree["lines"] == []
    assert [fault.partition(":")[0] for fault in faults] == [
        "number",
        "date",
        "seller is no object",
        "lines is no list",
    ]
    missing, invalid = INVOICE.faults(INVOICE.values(tree))
    assert missing == ["number", "seller"] and invalid == []


def test_optional_objects_lack_their_own_required_fields():
    tree, _ = read(INVOICE, {**ANSWER, "buyer": {"name": said(None, ""), "vat": said("GB1")}})
    assert INVOICE.faults(INVOICE.values(tree)) == (["buyer.name"], [])


def test_a_value_without_a_quote_is_kept():
    tree, faults = read(INVOICE, {**ANSWER, "number": "17"})
    assert (tree["number"].value, tree["number"].quote) == ("17", "")
    assert faults == ["number has no quote"]


def test_fields_have_paths_in_the_order_of_the_schema():
    tree, _ = read(INVOICE, ANSWER)
    assert [path for path, _ in INVOICE.fields(tree)] == [
        "number",
        "date",
        "seller.name",
        "lines[0].name",
        "lines[0].price",
    ]


def test_a_quoted_value_wins_and_others_are_noted():
    schema = read_schema({"type": "object", "properties": {"n": {"type": "string"}}})
    values = [Found("a"), Found("b", quoted=True), Found("c", quoted=True), Found("b", quoted=True), None]
    merged = schema.merged([{"n": value} for value in values])["n"]
    assert (merged.value, [other.value for other in merged.others]) == ("b", ["c"])
    assert schema.merged([{"n": None}, {"n": Found("x")}, {"n": Found("y")}])["n"] == Found("x")


def test_lists_are_joined_without_entries_of_earlier_passages():
    schema = read_schema({"type": "object", "properties": {"n": {"type": "array", "items": {"type": "integer"}}}})
    trees = [{"n": [Found(1), Found(1)]}, {"n": [Found(1), Found(2)]}]
    assert schema.values(schema.merged(trees)) == {"n": [1, 1, 2]}


def test_objects_merge_by_name():
    first, _ = read(INVOICE, {"seller": {"name": said("Finch")}})
    second, _ = read(INVOICE, {"seller": {"vat": said("GB1")}, "number": said("5")})
    assert INVOICE.values(INVOICE.merged([first, second]))["seller"] == {"name": "Finch", "vat": "GB1"}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"a": {"$ref": "other.json"}}, "refers to other.json"),
        ({"a": {"$ref": "https://example.com/schema"}}, "refers to https://example.com/schema"),
        ({"a": {"$ref": "#/$defs/lost"}}, "which it does not contain"),
        ({"a": {"$ref": "#"}}, "refers to itself"),
        ({"a": {"$ref": "#/$defs/tree"}}, "refers to itself: #/\\$defs/tree"),
        ({f"f{number}": {"type": "string"} for number in range(201)}, "has 201 fields"),
        ({"a": {"$ref": "#/$defs/wide"}}, "too large"),
        ({"a": {"type": "text"}}, "invalid at properties/a/type"),
        ({"a": {"allOf": [{"type": "string"}, {"minLength": 2}]}}, "allOf at a"),
        ({"a": {"$dynamicRef": "#x"}}, "\\$dynamicRef"),
        ({}, "not that of an object with properties"),
        ([1], "invalid at properties: .* is not of type 'object'"),
        ({"a": {"anyOf": "x"}}, "invalid at properties/a/anyOf"),
    ],
)
def test_an_impossible_schema_is_refused(properties, message):
    wide = {f"w{n}": {"anyOf": [{"$ref": f"#/$defs/w{n + 1}"}] * 10} for n in range(8)}
    tree = {"type": "object", "properties": {"inner": {"$ref": "#/$defs/tree"}}}
    defs = {"tree": tree, "wide": {"$ref": "#/$defs/w0"}, **wide, "w8": {"type": "string"}}
    with pytest.raises(UsageError, match=message):
        read_schema({"type": "object", "properties": properties, "$defs": defs})


def test_unions_and_free_objects_are_single_fields():
    schema = read_schema(
        {
            "type": "object",
            "properties": {
                "size": {"oneOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]},
                "notes": {"type": "object", "additionalProperties": {"type": "string"}},
                "code": {"type": ["string", "null"], "enum": ["a", "b", None]},
            },
        }
    )
    tree, faults = read(schema, {"size": said(3), "notes": said({"x": "y"}), "code": said("a")})
    assert faults == [] and schema.values(tree) == {"size": 3, "notes": {"x": "y"}, "code": "a"}
    assert read(schema, {"code": said("c")})[1] == ["code: 'c' is not one of ['a', 'b', None]"]


def test_null_in_an_enum_is_a_value_of_the_field():
    schema = read_schema({"type": "object", "properties": {"a": {"enum": ["x", None]}}, "required": ["a"]})
    values = schema.values(read(schema, {"a": said(None, "")})[0])
    assert values == {"a": None} and schema.faults(values) == ([], [])


def test_names_with_dots_are_no_paths_of_others():
    member = {"type": "object", "properties": {"b": {"type": "integer"}}}
    schema = read_schema(
        {"type": "object", "properties": {"a.b": {"type": "integer"}, "a": member}, "required": ["a.b"]}
    )
    tree, _ = read(schema, {"a.b": said(1), "a": {"b": said(2)}})
    assert [(path, one.value) for path, one in schema.fields(tree)] == [('["a.b"]', 1), ("a.b", 2)]
    assert schema.faults({"a": {"b": "x"}}) == (['["a.b"]'], ["a.b: 'x' is not of type 'integer'"])


def test_a_schema_file_may_begin_with_a_byte_order_mark(tmp_path):
    (tmp_path / "schema.json").write_text('{"type": "object"}', encoding="utf-8-sig")
    assert load_schema(str(tmp_path / "schema.json")) == {"type": "object"}
