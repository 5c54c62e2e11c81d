"""The CPU engine: a PDF's text layer where it is true, RapidOCR elsewhere, one layout analysis for both."""
