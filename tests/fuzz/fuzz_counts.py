"""How many cases each test of this folder tries."""

COUNTS = {
    "manifests": 700,
    "lists of pages": 200,
    "settings": 500,
    "command lines": 100,
    "names": 50,
    "made names": 300,
    "rows": 60,
    "web": 60,
    "addresses": 100,
    "documents": 120,
    "files of a run": 40,
}
