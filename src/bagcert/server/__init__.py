"""A model behind HTTP: it takes pictures and returns classes with their proofs (`docs/deploy.md`).

May import: answers, attacks, audit, config, defense, errors, pictures, program, rules, tensors, threats.
"""

from bagcert.errors import need_packages

PACKAGES = {
    "fastapi": "fastapi",
    "uvicorn": "uvicorn",
    "python_multipart": "python-multipart",
    "prometheus_client": "prometheus-client",
}


def need_serving() -> None:
    """Refuse in one line if a package is missing; the modules of this folder import them."""
    need_packages("The server", PACKAGES)
