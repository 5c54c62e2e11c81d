"""Documents that are not on this machine: on stores (s3, gs, hf) and on the web (https, http).

`listing` finds them without reading them, `documents.RemoteDocuments` makes local files of them while they are needed.
"""
