"""`python -m llm_ocr.serverless`: the worker."""

from llm_ocr.serverless import main

if __name__ == "__main__":
    main()
