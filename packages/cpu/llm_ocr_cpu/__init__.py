"""Read pages on the CPU: from a true text layer or with RapidOCR, with one layout analysis for both."""
