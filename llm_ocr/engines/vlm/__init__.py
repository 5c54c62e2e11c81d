"""Convert pages and figures to requests for a vision-language model, and answers to results."""
