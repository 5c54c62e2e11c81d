"""The worker's entry: `python handler.py`; beside the endpoint `--test_input JSON` or `--rp_serve_api`."""

from llm_ocr.serverless import main

if __name__ == "__main__":
    main()
