"""Read pages on the CPU: a PDF's text layer if it is true, otherwise RapidOCR, and one layout analysis for both."""
