"""Run the worker: `python handler.py`; without an endpoint add `--test_input JSON` or `--rp_serve_api`."""

from llm_ocr.serverless import main

if __name__ == "__main__":
    main()
