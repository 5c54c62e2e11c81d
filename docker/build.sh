#!/usr/bin/env bash
# Builds an image from this checkout: [VARIABLE=VALUE ...] docker/build.sh gpu|cpu|runpod [TAG]
#
# VLLM_BASE_IMAGE (gpu, runpod; with its digest) or PYTHON_IMAGE (cpu) must be set. PROFILES, MODEL_REVISION and
# GLMOCR_REF are passed on where they are set.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
  gpu) file=docker/gpu.Dockerfile base=VLLM_BASE_IMAGE ;;
  cpu) file=docker/cpu.Dockerfile base=PYTHON_IMAGE ;;
  runpod) file=runpod-serverless/Dockerfile base=VLLM_BASE_IMAGE ;;
  *)
    echo "usage: [VARIABLE=VALUE ...] docker/build.sh gpu|cpu|runpod [TAG]" >&2
    exit 2
    ;;
esac
if [ -z "${!base:-}" ]; then
  echo "$base is not set: it names the image to build on" >&2
  exit 2
fi
arguments=(--build-arg "$base=${!base}" --build-arg "GIT_COMMIT=${GIT_COMMIT:-$(git rev-parse HEAD 2>/dev/null || true)}")
if [ "$1" != cpu ]; then
  for name in PROFILES MODEL_REVISION GLMOCR_REF; do
    [ -z "${!name:-}" ] || arguments+=(--build-arg "$name=${!name}")
  done
fi
exec docker build --file "$file" --tag "${2:-llm-ocr-$1}" "${arguments[@]}" .
