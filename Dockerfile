# `bagcert serve` without root, on a read-only file system:
#
#   docker build -t bagcert .
#   docker run --rm --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges -p 8000:8000 bagcert
#
# Another model, patch or token: `docker run ... -e BAGCERT_TOKEN=... -v $PWD/runs/mine:/model:ro bagcert /model --patch 8x8`.
FROM python:3.12-slim AS build
WORKDIR /build
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m venv /app \
 && /app/bin/pip install --no-cache-dir -c constraints.txt torch --index-url https://download.pytorch.org/whl/cpu \
 && /app/bin/pip install --no-cache-dir -c constraints.txt '.[serve,onnx]'

FROM python:3.12-slim
COPY --from=build /app /app
RUN useradd --system --no-create-home --home-dir /tmp --shell /usr/sbin/nologin bagcert
USER bagcert
# What a library wants to cache goes to /tmp, the one place that can be written.
ENV HOME=/tmp MPLCONFIGDIR=/tmp PYTHONDONTWRITEBYTECODE=1 PATH=/app/bin:$PATH
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["bagcert", "serve", "--host", "0.0.0.0"]
CMD ["cifar10-small"]
