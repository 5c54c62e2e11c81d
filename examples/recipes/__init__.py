"""The recipes of the example documents: one module a document, and the parts that they share.

Nothing here is imported by the library. `make_examples.py` beside this package runs all of them.
"""
