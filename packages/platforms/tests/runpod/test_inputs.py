"""What a request may ask for: each wrong input is an error that begins with the field."""

import base64

import pytest

from llm_ocr_platforms.runpod.inputs import DocumentRequest, InputError, WarmUp, advised, read_input

PDF = base64.b64encode(b"%PDF-1.5").decode()
URL = "https://example.org/a.pdf"

WRONG = {
    "input": [None, [], "text", {}, {"start_page": 1}],
    "pdf_url": [{"pdf_url": one} for one in (7, "", "a.pdf", "/etc/passwd", "file:///etc/passwd", "s3://b/a.pdf")]
    + [{"warmup": True, "pdf_url": URL}],
    "pdf_urls": [{"pdf_urls": [URL]}],
    "image_urls": [{"image_urls": one} for one in (URL, [], {}, [URL] * 201)],
    "image_urls[1]": [{"image_urls": [URL, 3]}],
    "images_base64": [{"images_base64": PDF}, {"pdf_base64": PDF, "images_base64": [PDF]}],
    "images_base64[0]": [{"images_base64": [""]}],
    "source_base64": [{"source_base64": one} for one in ("no base64!", "data:application/pdf;base64,", 5)],
    "source_url": [{"pdf_url": URL, "source_url": URL}],
    "start_page": [{"pdf_url": URL, "start_page": one} for one in (0, -1, "2", 1.5, True)],
    "end_page": [{"pdf_url": URL, "end_page": 0}, {"pdf_url": URL, "start_page": 5, "end_page": 4}],
    "layout": [{"pdf_url": URL, "layout": "false"}, {"pdf_url": URL, "layout": 0}],
    "label_task_mapping": [
        {"pdf_url": URL, "label_task_mapping": one}
        for one in ([], {}, {"text": 3}, {"image": "read"}, {"read": ["image"]}, {"text": [3]})
    ]
    + [{"pdf_url": URL, "layout": False, "label_task_mapping": {"image": "text"}}],
    "return_crop_images": [{"pdf_url": URL, "return_crop_images": "yes"}],
    "crop_images_base64": [{"pdf_url": URL, "crop_images_base64": 1}],
    "max_crop_images": [{"pdf_url": URL, "max_crop_images": -1}, {"pdf_url": URL, "max_crop_images": "9"}],
    "return_layout_visualization": [{"pdf_url": URL, "return_layout_visualization": []}],
    "layout_visualization_base64": [{"pdf_url": URL, "layout_visualization_base64": "no"}],
    "warmup": [{"warmup": "true"}],
    "stage": [{"stage": "extract", "workspace": "s3://b/r"}],
    "workspace": [{"pdf_url": URL, "workspace": "s3://bucket/run"}],
    # A request sets none of the worker's own settings.
    **{
        name: [{"pdf_url": URL, name: "x"}]
        for name in ("vllm_command", "LLM_OCR_VLLM_COMMAND", "environment", "config")
    },
}


@pytest.mark.parametrize(("name", "given"), [(name, one) for name, many in WRONG.items() for one in many])
def test_a_wrong_input_is_an_error_that_names_the_field(name, given):
    with pytest.raises(InputError) as caught:
        read_input({"id": "1", "input": given})
    assert str(caught.value).startswith(f"{name}: ")


def test_everything_of_a_document_is_read():
    request = read_input(
        {
            "input": {
                "pdf_url": URL,
                "start_page": 2,
                "end_page": 12,
                "return_crop_images": True,
                "crop_images_base64": False,
                "max_crop_images": 7,
                "return_layout_visualization": True,
                "layout_visualization_base64": True,
                "label_task_mapping": {"text": ["image", "seal"], "chart": "skip"},
                "warmup": False,
                "layout": None,
            }
        }
    )
    assert isinstance(request, DocumentRequest)
    assert (request.first, request.last, request.whole) == (2, 12, False)
    assert (request.crops.wanted, request.crops.inline, request.crops.most) == (True, False, 7)
    assert (request.layouts.wanted, request.layouts.inline) == (True, True)
    assert request.tasks == ("image=text", "seal=text", "chart=skip")


def test_base64_may_come_as_a_data_url_and_in_lines():
    request = read_input({"input": {"pdf_base64": f"data:application/pdf;base64,{PDF[:4]}\n{PDF[4:]}"}})
    assert isinstance(request, DocumentRequest)
    assert request.files[0].data == b"%PDF-1.5"


def test_a_warm_up_is_read():
    assert read_input({"input": {"warmup": True}}) == WarmUp()


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("several models\nSay which to ask for: --server-model NAME", "LLM_OCR_SERVER_MODEL=NAME"),
        ("no server\nCheck --server-url and that it runs: curl http://h/v1/models", "Check LLM_OCR_SERVER_URL and"),
        ("too many\nRead fewer with --pages 1-5", "Read fewer with start_page and end_page"),
        ("--region-task table: no such label", "label_task_mapping table"),
        ("Set `render_timeout`, or `pages`.", "Set LLM_OCR_RENDER_TIMEOUT, or start_page and end_page."),
        ("`server_url=URL` or `vllm serve`", "LLM_OCR_SERVER_URL=URL or `vllm serve`"),
        ("--max-page-attempts=3 was not enough", "LLM_OCR_MAX_PAGE_ATTEMPTS=3"),
        ("Start it with it: vllm serve --chat-template-content-format auto", "--chat-template-content-format auto"),
        ("The page -- here -- is --- empty", "The page -- here -- is --- empty"),
    ],
)
def test_a_reply_advises_fields_and_variables_instead_of_flags(message, advice):
    assert advice in advised(message)
