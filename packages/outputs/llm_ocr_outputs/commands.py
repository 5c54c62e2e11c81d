"""The commands of this package. The module is light because `llm-ocr --help` imports it."""

from llm_ocr.plugins import Command

VIEW = Command(
    "view",
    "Build a static website of the results, to open from disk",
    "llm_ocr.config.models:ViewSettings",
    "llm_ocr_outputs.viewer:view",
    "view [-w FOLDER] --output FOLDER [options]",
    (
        ("llm-ocr view -w out --output site", "Write site/index.html"),
        ("llm-ocr view -w out --compare other --output site", "Show two runs side by side"),
    ),
    after="export",
)

REPORT = Command(
    "report",
    "Write an HTML report of a run: throughput, tokens, failures, quality, cost",
    "llm_ocr.config.models:ReportSettings",
    "llm_ocr_outputs.report:report",
    "report [-w FOLDER] [--output FILE]",
    (
        ("llm-ocr report -w out", "Write llm-ocr-report.html"),
        ("llm-ocr report -w s3://bucket/run --output run.html", "Report on a run in a bucket, also while it runs"),
    ),
    after="export",
)
