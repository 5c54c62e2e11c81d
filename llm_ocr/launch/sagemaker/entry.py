"""Run a command in a SageMaker container: `python -m llm_ocr.launch.sagemaker.entry COMMAND…`.

The program puts the job's secrets from AWS Secrets Manager into the environment, then the command takes its place.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence

from llm_ocr.errors import LaunchError, LlmOcrError
from llm_ocr.launch.sagemaker.client import Clients, translated
from llm_ocr.launch.sagemaker.requests import SECRETS
from llm_ocr.settings.environment import environment, leave_error


def main(command: Sequence[str]) -> int:
    """Run the command in place of this process; return an exit code only if its secrets cannot be had."""
    if not command:
        sys.stderr.write("llm-ocr: usage: python -m llm_ocr.launch.sagemaker.entry COMMAND...\n")
        return 2
    given = dict(environment())
    try:
        found = fetched(given.pop(SECRETS, ""), given)
    except LlmOcrError as error:
        sys.stderr.write(f"llm-ocr: {error}\n")
        leave_error(str(error))
        return error.exit_code
    words = [sys.executable if word == "python" else word for word in command]
    os.execvpe(words[0], words, {**given, **found})  # noqa: S606 - the command of the job itself


def fetched(wanted: str, variables: Mapping[str, str]) -> dict[str, str]:
    """The values of secrets, `wanted` as NAME=ID,…; of one that is a JSON object the value under its NAME, if any.

    Raises `LaunchError` for one that is not there or may not be read, with the permission that is missing.
    """
    pairs = [one.partition("=") for one in wanted.split(",") if one]
    return {name: _fetched(name, where, variables) for name, _, where in pairs}


def _fetched(name: str, where: str, variables: Mapping[str, str]) -> str:
    hint = f"Allow secretsmanager:GetSecretValue on it to the job's role: sagemaker/job-policy.json ({where})."
    absent = f"Create it: aws secretsmanager create-secret --name {where} --secret-string file://FILE"
    client = Clients(_region(where, variables)).of("secretsmanager")
    hints = {"AccessDeniedException": hint, "ResourceNotFoundException": absent}
    with translated(f"read the secret {where} for {name}", hints):
        text = client.get_secret_value(SecretId=where).get("SecretString")
    if not text:
        raise LaunchError(f"the secret {where} for {name} holds no text", hint="Store it with --secret-string.")
    return _value(name, str(text))


def _region(where: str, variables: Mapping[str, str]) -> str | None:
    """Where the secret is: its ARN says it, or what SageMaker tells its containers, or the SDK."""
    for arn in (where, variables.get("TRAINING_JOB_ARN", "")):
        if arn.startswith("arn:"):
            return arn.split(":")[3]
    return variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION")


def _value(name: str, text: str) -> str:
    """The console of AWS stores pairs, as JSON."""
    try:
        pairs = json.loads(text)
    except ValueError:
        return text.rstrip("\n")
    return str(pairs[name]) if isinstance(pairs, dict) and name in pairs else text.rstrip("\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
