"""Job that submits the stages of a pipeline: `python -m llm_ocr.launch.coordinator`.

`launch pipeline --detach` submits this job as the stage `pipeline` of a launch, on a CPU machine of the platform. The
job reads `launch.json`, whose hash it received from the launching machine, and does the work of `launch --wait`. The
exit code is the same, too. After a cancellation or a kill, the same command continues with the workspace.
"""

import sys
from dataclasses import replace

from llm_ocr.config.environment import environment, leave_error
from llm_ocr.errors import LlmOcrError
from llm_ocr.launch import JobSpec, launcher_for
from llm_ocr.launch.launching import Launch, Limits, known_as
from llm_ocr.launch.records import launch_from
from llm_ocr.launch.watching import Display
from llm_ocr.storage import StoreOptions
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.status import run_status
from llm_ocr.workspace.stored import verified_launch


def main() -> int:
    """Run the pipeline of the launch in the environment, and return the exit code of `launch --wait`."""

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    variables = environment()
    url, reference = variables.get("LLM_OCR_WORKSPACE", ""), variables.get("LLM_OCR_LAUNCH", "")
    reached = (variables.get("LLM_OCR_WORKSPACE_ENDPOINT"), variables.get("LLM_OCR_WORKSPACE_REGION"))
    options = StoreOptions(None, *reached)
    try:
        asked = launch_from(verified_launch(url, options, reference), reference)
        limits = Limits(**asked.limits)
        asked = replace(asked, specs={stage: _from_here(asked.platform, spec) for stage, spec in asked.specs.items()})
        with Workspace.open(url, options=options) as workspace:
            launch = Launch(workspace, launcher_for(asked.platform), known_as(asked, reference), limits, Display(say))
            launch.run_stages()
            pages = run_status(workspace).pages
    except LlmOcrError as error:
        sys.stderr.write(f"llm-ocr: {error}\n")
        leave_error(str(error))
        return error.exit_code
    say(f"{pages.ok} ok, {pages.degraded} degraded, {pages.failed} failed")
    return 3 if pages.failed > limits.max_failed_rate * pages.expected else 0


def _from_here(platform: str, spec: JobSpec) -> JobSpec:
    """Return a stage's spec for submission by this job, with the library, region, and variables of this container."""
    options, variables = dict(spec.options), environment()
    if str(options.get("wheel") or "").endswith(".whl"):
        options["wheel"] = None
    if platform == "sagemaker" and not options.get("region"):
        options["region"] = variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION")
    secrets = dict.fromkeys(spec.secrets, "") if platform == "hf-jobs" else spec.secrets
    return replace(spec, options=options, secrets=secrets)


if __name__ == "__main__":
    sys.exit(main())
