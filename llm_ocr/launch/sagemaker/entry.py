"""Entry point of a SageMaker container: `python -m llm_ocr.launch.sagemaker.entry COMMAND…`.

The program adds the job's secrets from AWS Secrets Manager to the environment, and replaces itself by the command.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence

from llm_ocr.config.environment import environment, leave_error
from llm_ocr.errors import LaunchError, LlmOcrError
from llm_ocr.launch.sagemaker import Clients, asking
from llm_ocr.launch.sagemaker.requests import SECRETS


def main(command: Sequence[str]) -> int:
    """Run the command in place of this process; return an exit code only if a secret is unavailable."""
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
    """Return the values of secrets, `wanted` as NAME=ID,…; for a JSON object, the value under its NAME, if any.

    Raises:
        LaunchError: A secret does not exist, or may not be read. The error names the missing permission.
    """
    found = {}
    for pair in filter(None, wanted.split(",")):
        name, _, where = pair.partition("=")
        hints = {
            "AccessDeniedException": "Grant the job's role secretsmanager:GetSecretValue on it: "
            f"sagemaker/job-policy.json ({where}).",
            "ResourceNotFoundException": f"Create it: aws secretsmanager create-secret --name {where} "
            "--secret-string file://FILE",
        }
        # The region is in the secret's ARN, or in a variable of SageMaker; otherwise the SDK determines the region.
        arns = (arn for arn in (where, variables.get("TRAINING_JOB_ARN", "")) if arn.startswith("arn:"))
        region = variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION")
        client = Clients(next((arn.split(":")[3] for arn in arns), region)).of("secretsmanager")
        with asking(f"read the secret {where} for {name}", hints):
            text = str(client.get_secret_value(SecretId=where).get("SecretString") or "")
        if not text:
            raise LaunchError(f"the secret {where} for {name} contains no text", hint="Store it with --secret-string.")
        try:
            values = json.loads(text)  # AWS's console stores pairs
        except ValueError:
            values = None
        found[name] = str(values[name]) if isinstance(values, dict) and name in values else text.rstrip("\n")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
