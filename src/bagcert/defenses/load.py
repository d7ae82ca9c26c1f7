"""Defenses by name: models that come with the package, and folders written by training."""

from importlib import resources
from pathlib import Path
from typing import Any

from bagcert.defenses.defense import Defense
from bagcert.errors import UsageError, unknown_name
from bagcert.files import read_json
from bagcert.scorers.saved import CONFIG, load_scorer


def load(name: str | Path) -> Defense:
    """A shipped model, or a run folder, as a defense with the rule and threat on its card."""
    scorer, card = load_scorer(model_folder(name))
    try:
        return Defense.build(scorer, card["rule"], card["patch"], tuple(card["classes"]))
    except (KeyError, TypeError) as error:
        raise UsageError(f"expected rule, patch and classes in config.json, got none or others: {error}") from error


def model_folder(name: str | Path) -> Path:
    """Where a model lies."""
    if Path(name).is_dir():
        return Path(name)
    models = shipped_models()
    if str(name) not in models:
        raise unknown_name("a run folder or a model", str(name), models)
    return models[str(name)]


def shipped_models() -> dict[str, Path]:
    """The folders of the models that come with the package, by name."""
    with resources.as_file(resources.files("bagcert") / "models") as folder:
        return {config.parent.name: config.parent for config in sorted(folder.glob(f"*/{CONFIG}"))}


def card(name: str | Path) -> dict[str, Any]:
    """What is known of a model: recipe, seed, device, data, and its accuracies."""
    return read_json(model_folder(name) / CONFIG)
