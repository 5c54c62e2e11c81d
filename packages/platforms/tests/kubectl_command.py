"""A `kubectl` for tests: what READMEs use of it, sent to the API server of the kubeconfig."""

import json
import os
import sys
from pathlib import Path
from urllib.request import Request, urlopen


def main(words):
    config = json.loads(Path(os.environ["KUBECONFIG"]).read_text())
    server, token = config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]["token"]

    def post(path, body):
        asked = Request(f"{server}/api/v1/{path}", json.dumps(body).encode(), {"Authorization": f"Bearer {token}"})
        urlopen(asked).read()

    match words:
        case ["create", "namespace", name]:
            post("namespaces", {"metadata": {"name": name}})
        case ["create", "secret", "generic", name, "-n", namespace, *values]:
            found = {}
            for value in values:
                how, key, text = value.split("=", 2)
                found[key] = Path(text).read_text().strip() if how == "--from-file" else text
            post(f"namespaces/{namespace}/secrets", {"metadata": {"name": name}, "stringData": found})
        case ["apply", "-n", _, "-f", file]:
            assert Path(file).is_file()
        case ["delete", "namespace", _]:
            pass
        case _:
            sys.exit(f"kubectl: unknown {words}")


main(sys.argv[1:])
