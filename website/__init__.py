"""The documentation site: `make site` builds it from `docs/`, the README, the docstrings and the commands."""
