"""Fields: values of a schema with their quotes, from the workspace to the export, with simulated answers."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from pydantic import BaseModel
from running import FRUGALLY, cli, said, status_of

import llm_ocr
from llm_ocr.errors import LimitReached, ServerError, StageMissing, UsageError
from llm_ocr.types import Reason, Status
from llm_ocr_simulator import running


class Line(BaseModel):
    item: str
    amount: float


class Invoice(BaseModel):
    number: str
    total: float
    lines: list[Line] = []


def asked(value, quote):
    return {"quote": quote, "value": value}


ANSWER = {
    "number": asked("1847", "Invoice number 1847"),
    "total": asked(212.0, "Total in pounds 212.00"),
    "lines": [{"item": asked("G-20", "G-20"), "amount": asked(114.0, "114.00")}],
}
NOTHING = {"number": asked(None, ""), "total": asked(None, ""), "lines": []}
MODEL = "qwen3-vl-8b"


@pytest.fixture
def assembled(golden, invoice_and_paper, tmp_path):
    """A workspace with an invoice and a paper of three pages."""

    def make(folder):
        shutil.copytree(invoice_and_paper, folder / "w")
        llm_ocr.run(workspace=folder / "w", **FRUGALLY)

    return shutil.copytree(golden("assembled-invoice", make) / "w", tmp_path / "w")


def serving(folder, answers, **more):
    file = folder / "forced.json"
    file.write_text(json.dumps({part: json.dumps(answer) for part, answer in answers.items()}))
    return running(forced=file, served_model_name=MODEL, preset="h100", speed=50, **more)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server that finds the values of the invoice, and none in the paper."""
    with serving(tmp_path_factory.mktemp("answers"), {"Quarrel": ANSWER, "[page": NOTHING}) as started:
        yield started


def read(workspace, server, schema=Invoice, **more):
    return llm_ocr.fields(workspace=workspace, schema=schema, server_url=server.url, progress=None, **more)


def test_each_document_has_its_values_with_quotes(assembled, server):
    run = read(assembled, server)
    server.reset()
    read(assembled, server)
    assert server.log()["requests"] == []  # nothing is asked twice
    rows = {row.source.rpartition("/")[2]: row for row in run.fields()}
    invoice, paper = rows["invoice.png"], rows["paper.pdf"]
    assert invoice.status is Status.OK, invoice
    assert Invoice.model_validate(invoice.values).lines == [Line(item="G-20", amount=114.0)]
    assert all(one["quoted"] and one["page"] == 1 and one["box"] for one in invoice.fields)
    assert (paper.status, paper.reason) == (Status.DEGRADED, Reason.FIELD_MISSING)
    status = run.status
    assert (status.fields.expected, status.fields.ok, status.fields.degraded, status.fields.failed) == (2, 1, 1, 0)
    assert status.stages["fields"].finished and status.field_reasons == {"field missing": 1}
    assert status_of(assembled)["fields"]["degraded"] == 1


def test_the_example_answer_marks_the_invented_year(assembled, tmp_path, examples):
    answer = json.loads((examples / "invoice-answer.json").read_text())
    with serving(tmp_path, {"Quarrel": answer, "[page": {}}) as server:
        run = read(assembled, server, examples / "invoice.json")
    (invoice,) = (row for row in run.fields() if row.source.endswith("invoice.png"))
    assert [one["path"] for one in invoice.fields if not one["quoted"]] == ["date"]
    assert (invoice.reason, len(invoice.values["lines"]), invoice.values["total"]) == (Reason.NOT_QUOTED, 5, 212.0)
    assert sum(line["amount"] for line in invoice.values["lines"]) + 8 == invoice.values["total"]


@pytest.mark.slow
def test_each_schema_has_its_results_and_the_last_is_current(assembled, tmp_path):
    other = {"type": "object", "properties": {"total": {"type": "number"}}}
    with serving(tmp_path, {"[page": {**NOTHING, "total": asked(1.5, "")}}) as server:
        for schema in (Invoice, other, Invoice):
            run = read(assembled, server, schema)
            assert all(
                row.values.keys() == ({"total", "lines"} if schema is Invoice else {"total"}) for row in run.fields()
            )
        assert len(server.log()["requests"]) == 4
    assert run.status.field_reasons == {"field missing": 2}


def test_half_of_a_character_is_stored_and_exported_as_a_mark(assembled, tmp_path):
    answer = json.dumps({**NOTHING, "number": asked("NUMBER", "1847")}).replace('"NUMBER"', '"18\\ud83d47"')
    (tmp_path / "forced.json").write_text(json.dumps({"[page": answer}))
    with running(forced=tmp_path / "forced.json", served_model_name=MODEL, preset="h100", speed=50) as server:
        run = read(assembled, server, max_page_attempts=1)
    llm_ocr.export(workspace=assembled, output=tmp_path / "o", format="fields", progress=None)
    assert [row.values.get("number") for row in run.fields()] == ["18?47", "18?47"]
    assert all(row.status is not Status.OK for row in run.fields())


def test_long_documents_are_read_in_passages(assembled, server):
    server.reset()
    rows = list(read(assembled, server, passage_tokens=1000).fields())
    assert len(server.log()["requests"]) == sum(row.passages for row in rows)
    assert max(row.passages for row in rows) > 2


def test_an_answer_without_the_form_is_repeated_and_then_counted(assembled, tmp_path):
    with serving(tmp_path, {"[page": "no fields at all"}) as server:
        run = read(assembled, server, max_page_attempts=2)
        assert len(server.log()["requests"]) == 2 * sum(row.passages for row in run.fields())
    assert {(row.status, row.reason) for row in run.fields()} == {(Status.FAILED, Reason.MALFORMED)}
    assert run.status.fields.failed == 2


@pytest.mark.slow
def test_documents_that_a_server_refused_are_asked_again(assembled, server):
    server.set_faults({"400": 1.0})
    try:
        with pytest.raises(ServerError, match="none of") as caught:
            read(assembled, server)
    finally:
        server.set_faults({})
    assert "run the command again" in caught.value.hint
    assert llm_ocr.open(assembled).status.fields.ended == 0
    assert read(assembled, server).status.fields.ok == 1


@pytest.mark.slow
def test_equal_lines_and_absent_fields_are_no_loop(assembled, tmp_path):
    absent = [f"field_{number}" for number in range(190)]
    schema = Invoice.model_json_schema()
    schema["properties"] |= {name: {"type": "string"} for name in absent}
    answer = {**ANSWER, "lines": 40 * ANSWER["lines"], **{name: asked(None, "") for name in absent}}
    with serving(tmp_path, {"Quarrel": answer, "[page": NOTHING}, max_model_len=32768) as server:
        found = {len(row.values["lines"]): row.status for row in read(assembled, server, schema).fields()}
    assert found[40] is Status.OK


def test_two_workers_with_leases_share_the_documents(assembled, server):
    server.reset()
    with ThreadPoolExecutor(2) as pool:
        workers = [pool.submit(read, assembled, server, lease_seconds=30) for _ in range(2)]
        runs = [worker.result() for worker in workers]
    assert len(server.log()["requests"]) == sum(row.passages for row in runs[0].fields())
    assert runs[0].status.fields.ended == 2
    assert sum(run.processed["fields"].expected for run in runs) == 2


def test_shards_share_the_documents(assembled, server):
    server.reset()
    for index in range(2):
        run = read(assembled, server, shard_index=index, shard_count=2)
    assert len(server.log()["requests"]) == sum(row.passages for row in run.fields())


@pytest.mark.slow
def test_new_text_of_a_page_is_asked_again(assembled, server, tmp_path):
    run = read(assembled, server)
    documents = {row.document_id for row in run.fields()}
    page = next(page for page in run.pages(images=False) if page.source.endswith("invoice.png"))
    (tmp_path / "list.txt").write_text(page.page_id)
    llm_ocr.repair(workspace=assembled, page_list=tmp_path / "list.txt", headers="keep", progress=None, **FRUGALLY)
    assert page.document_id not in {row.document_id for row in run.fields()}
    assert run.status.fields.expected == 2 and not run.status.stages["fields"].finished
    server.reset()
    read(assembled, server)
    assert server.log()["requests"]
    assert [row.document_id for row in run.fields()].count(page.document_id) == 1
    assert {row.document_id for row in run.fields()} == documents
    assert run.status.stages["fields"].finished and run.status.fields.ok == 1


@pytest.mark.slow
def test_limits_of_cost_end_the_stage(assembled, server):
    run = read(assembled, server, price_in=1.0, price_out=1.0)
    assert run.status.cost == pytest.approx((run.status.tokens_in + run.status.tokens_out) / 1e6)
    with pytest.raises(LimitReached, match="spent by earlier runs"):
        read(assembled, server, price_in=1.0, max_cost=0.000001)


def test_the_command_line_reads_a_file_and_exports(assembled, server, tmp_path):
    (tmp_path / "invoice.json").write_text(json.dumps(Invoice.model_json_schema()))
    run = cli("fields", "-w", "w", "--schema", "invoice.json", "--server-url", server.url, cwd=tmp_path)
    assert run.returncode == 0, said(run)
    assert (
        run.stdout.endswith("2 documents: 1 ok, 1 degraded, 0 failed (field missing 1)\n") or "1 degraded" in run.stdout
    )
    status = cli("status", "-w", "w", cwd=tmp_path)
    assert "fields     2 documents: 1 ok, 1 degraded" in status.stdout, said(status)


def test_without_a_model_the_flag_to_give_is_named(assembled, tmp_path):
    (tmp_path / "s.json").write_text(json.dumps(Invoice.model_json_schema()))
    for more in ([], ["--engine", "embedded"]):
        run = cli("fields", "-w", "w", "--schema", "s.json", *more, cwd=tmp_path)
        assert run.returncode == 2 and "--server-url" in run.stderr, said(run)
    missing = cli("fields", "-w", "w", "--server-url", "http://127.0.0.1:9", cwd=tmp_path)
    assert missing.returncode == 2 and "--schema" in missing.stderr, said(missing)


@pytest.mark.slow
def test_the_only_model_of_a_server_is_asked(assembled, tmp_path):
    with running(served_model_name="my-llm", preset="h100", speed=50) as server:
        (row, _) = read(assembled, server).fields()
        assert row.engine == "my-llm"
    with (
        running(served_model_name="deepseek-ai/DeepSeek-OCR") as server,
        pytest.raises(UsageError, match="reads pages"),
    ):
        read(assembled, server)


def test_options_without_effect_and_page_models_are_errors(assembled):
    for more, message in (
        ({"model": "deepseek-ocr"}, "deepseek-ocr reads pages and follows no instructions"),
        ({"engine": "hybrid"}, "`engine=hybrid` has no effect"),
        ({"parser": "plain"}, "`parser` has"),
    ):
        with pytest.raises(UsageError, match=message):
            llm_ocr.fields(workspace=assembled, schema=Invoice, server_url="http://127.0.0.1:9", **more)


def test_a_schema_is_refused_before_anything_is_asked(tmp_path):
    for schema, message in (
        ({"type": "object", "properties": {"a": {"$ref": "b.json"}}}, "refers to b.json"),
        (tmp_path / "lost.json", "No such file"),
        ("{", "no JSON"),
    ):
        with pytest.raises(UsageError, match=message):
            llm_ocr.fields(workspace=tmp_path / "none", schema=schema, server_url="http://127.0.0.1:9")


def test_unfinished_documents_are_refused(digital, tmp_path):
    llm_ocr.extract(digital / "one.pdf", workspace=tmp_path / "w", **FRUGALLY)
    with pytest.raises(StageMissing, match="is not assembled"):
        llm_ocr.fields(workspace=tmp_path / "w", schema=Invoice, server_url="http://127.0.0.1:9")
