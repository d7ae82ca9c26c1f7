"""A model behind HTTP: it takes pictures and returns classes with their proofs (`docs/deploy.md`).

May import: attacks, audit, defense, errors, program, rules, tensors, threats.
"""

from importlib.util import find_spec

from bagcert.errors import UsageError

PACKAGES = {
    "fastapi": "fastapi",
    "uvicorn": "uvicorn",
    "python_multipart": "python-multipart",
    "prometheus_client": "prometheus-client",
}


def need_serving() -> None:
    """Raise a one-line error if a package is missing; import the modules that need them only after this call."""
    missing = [name for module, name in PACKAGES.items() if find_spec(module) is None]
    if missing:
        raise UsageError(
            f"The server needs packages that are not installed: {', '.join(missing)}. Run: pip install 'bagcert[all]'."
        )
