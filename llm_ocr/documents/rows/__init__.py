"""Rows of Hugging Face datasets as documents: a row is a document, its image a page, a list of images its pages.

A plan is made of the files' footers (`listing`); images come when their page is rendered, a row group at a time,
through files of this process (`images`). The commit that was planned is the one that is read, wherever the branch has
gone since.
"""
