# The controller's image: two stages, no compiler and no root in the second.
#   docker build --build-arg BASE=python:3.13-slim -t gpu-sharing-operator:dev .
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /src
COPY requirements-image.lock pyproject.toml README.md LICENSE ./
COPY operator operator
RUN python -m venv /opt/gpusharing \
 && /opt/gpusharing/bin/pip install --no-cache-dir --require-hashes --requirement requirements-image.lock \
 && /opt/gpusharing/bin/pip install --no-cache-dir --no-deps . \
 && /opt/gpusharing/bin/pip uninstall --yes --quiet pip

FROM ${BASE}
LABEL org.opencontainers.image.title="gpu-sharing-operator" \
      org.opencontainers.image.description="Declare once how GPUs are shared; every node gets it, provably." \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/gpusharing /opt/gpusharing
ENV PATH=/opt/gpusharing/bin:$PATH \
    PYTHONSAFEPATH=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["gpusharing"]
