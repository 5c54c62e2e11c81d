"""Run the worker: `python handler.py`; without an endpoint add `--test_input JSON` or `--rp_serve_api`."""

from llm_ocr_platforms.runpod import main

if __name__ == "__main__":
    main()
