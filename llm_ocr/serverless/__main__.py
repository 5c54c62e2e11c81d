"""Entry point of `python -m llm_ocr.serverless`."""

from llm_ocr.serverless import main

if __name__ == "__main__":
    main()
