"""`runpod-serverless/handler.py` as it is run beside an endpoint: the real runpod package, its local API server."""

import json
import socket
import time
import urllib.request

import pytest
from free_ports import free_port
from serverless_running import FRUGAL, b64

from tests.fakes.container import Container

pytestmark = pytest.mark.needs("runpod")
ENVIRONMENT = {f"LLM_OCR_{name.upper()}": str(value) for name, value in FRUGAL.items()}


@pytest.fixture(scope="module")
def handler(repository):
    return str(repository / "runpod-serverless" / "handler.py")


@pytest.fixture(scope="module")
def served(handler):
    """The local API server and its port."""
    port = free_port()
    words = ["python", handler, "--rp_serve_api", "--rp_api_host", "127.0.0.1", "--rp_api_port", str(port)]
    server = Container(words, {**ENVIRONMENT, "LLM_OCR_ALLOW_PRIVATE_ADDRESSES": "true"})

    try:
        wait_for(server, port)
        yield server, port
    finally:
        server.remove()


@pytest.fixture
def log(served):
    """What it has written so far."""
    return served[0].lines


@pytest.fixture
def api(served):
    """What it answers to an input."""

    def ask(given):
        url = f"http://127.0.0.1:{served[1]}/runsync"
        body = json.dumps({"input": given}).encode()
        with urllib.request.urlopen(
            urllib.request.Request(url, body, {"Content-Type": "application/json"}), timeout=120
        ) as answer:
            return json.load(answer)

    return ask


def wait_for(server, port):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert server.exit_code is None, server.lines()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(server.lines())


def test_a_document_is_answered_by_the_api_server(api, site):
    more = {"return_crop_images": True, "crop_images_base64": True, "return_layout_visualization": True}
    answer = api({"pdf_url": f"{site}/paper.pdf", "start_page": 1, "end_page": 1, **more})
    assert answer["status"] == "COMPLETED", answer
    output = answer["output"]
    assert output["markdown_result"].strip()
    assert len(output["json_result"]) == 1
    assert {"crop_images", "layout_visualizations", "llm_ocr_version", "model_revision"} <= set(output)


def test_wrong_input_fails_the_job_and_the_worker_survives(api):
    answer = api({"pdf_urls": "https://example.org/a.pdf"})
    assert (answer["status"], answer["error"]) == ("FAILED", "pdf_urls: unknown field; did you mean pdf_url?")
    answer = api({"warmup": True})
    assert (answer["status"], answer["output"]["warmup"]) == ("COMPLETED", True)


@pytest.mark.slow
def test_one_input_on_the_command_line(handler, small_examples):
    given = json.dumps({"input": {"images_base64": [b64(small_examples / "invoice.png")]}})
    run = Container(["python", handler, "--test_input", given], ENVIRONMENT)
    try:
        assert run.wait(120) == 0
        assert any("Job result" in line and "Invoice" in line for line in run.lines())
    finally:
        run.remove()


@pytest.mark.slow
def test_wrong_settings_end_the_worker_with_a_sentence(handler):
    run = Container(["python", handler, "--test_input", '{"input": {}}'], {**ENVIRONMENT, "MAX_NUM_SEQS": "many"})
    try:
        assert run.wait(120) == 2
        assert any("MAX_NUM_SEQS=many" in line for line in run.lines())
        assert not any("Traceback" in line for line in run.lines())
    finally:
        run.remove()


@pytest.mark.slow
def test_the_pages_text_does_not_stand_in_the_workers_log(api, log, small_examples):
    """RunPod's package writes whole replies into the log where nobody says otherwise."""
    answer = api({"images_base64": [b64(small_examples / "invoice.png")]})
    assert "Quarrel" in answer["output"]["markdown_result"]
    assert log() and not any("Quarrel" in line for line in log())
