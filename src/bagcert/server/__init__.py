"""A model behind HTTP: pictures in, classes with their proofs out (`docs/deploy.md`)."""

from importlib.util import find_spec

from bagcert.errors import UsageError

PACKAGES = {
    "fastapi": "fastapi",
    "uvicorn": "uvicorn",
    "python_multipart": "python-multipart",
    "prometheus_client": "prometheus-client",
}


def need_serving() -> None:
    """Refuse in one line where a package is missing; modules that import them are imported after this call."""
    missing = [name for module, name in PACKAGES.items() if find_spec(module) is None]
    if missing:
        raise UsageError(
            f"expected {', '.join(PACKAGES.values())} to be installed, got no {', '.join(missing)}; "
            "pip install 'bagcert[all]'"
        )
