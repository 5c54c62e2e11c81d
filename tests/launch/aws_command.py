"""The command line of AWS, as far as README files use it: a stand-in that asks by boto3, as `aws` is not in a checkout.

`aws SERVICE OPERATION --flag value …`: operation and flags must be those of the service's model. Also `aws s3 mb`,
`aws s3 rb --force` and `aws ecr get-login-password`, which are no operations.
"""

import json
import sys
from pathlib import Path
from typing import Any

import boto3
from botocore import xform_name


def main(words: list[str]) -> int:
    service, operation, *rest = words
    if service == "s3":
        return s3(operation, rest)
    if (service, operation) == ("ecr", "get-login-password"):
        print(boto3.client("ecr").get_authorization_token()["authorizationData"][0]["authorizationToken"])
        return 0
    client = boto3.client(service)
    names = {xform_name(name, "-"): name for name in client.meta.service_model.operation_names}
    shape = client.meta.service_model.operation_model(names[operation]).input_shape
    flags, query = given(rest)
    members = {xform_name(name, "-"): name for name in (shape.members if shape else {})}
    parameters = {members[flag]: typed(shape.members[members[flag]], values) for flag, values in flags.items()}
    answer = getattr(client, xform_name(names[operation]))(**parameters)
    answer.pop("ResponseMetadata")
    print(answer[query] if query else json.dumps(answer, default=str))
    return 0


def given(rest: list[str]) -> tuple[dict[str, list[str]], str]:
    flags: dict[str, list[str]] = {}
    for word in rest:
        if word.startswith("--"):
            flags[word.removeprefix("--")] = values = []
        else:
            values.append(word)
    query = flags.pop("query", [""])[0]
    assert flags.pop("output", ["text"]) == ["text"]
    return flags, query


def typed(shape: Any, values: list[str]) -> Any:
    if shape.type_name == "boolean":
        assert not values
        return True
    read = [
        Path(value.removeprefix("file://")).read_text() if value.startswith("file://") else value for value in values
    ]
    if shape.type_name == "list":
        return read
    (value,) = read
    return int(value) if shape.type_name in ("integer", "long") else value


def s3(operation: str, rest: list[str]) -> int:
    bucket = boto3.resource("s3").Bucket(rest[0].removeprefix("s3://"))
    if operation == "mb":
        bucket.create()
    else:
        assert (operation, rest[1:]) == ("rb", ["--force"])
        bucket.objects.all().delete()
        bucket.delete()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
