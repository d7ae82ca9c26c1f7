"""Models by name: those that come with the package, folders, and those of the Hugging Face Hub."""

from importlib import resources
from pathlib import Path
from typing import Any

from bagcert.errors import UsageError, unknown_name
from bagcert.hub import download, is_on_hub, pinned
from bagcert.scorers.weights import CONFIG, read_card


def model_folder(name: str | Path) -> Path:
    """The folder of a model: a path, the name of a shipped one, or `hf-hub:owner/name`, which is fetched if needed."""
    if not isinstance(name, str | Path):
        raise UsageError(
            f"A model must be a name or a folder, but is {name!r:.60}. Known: {', '.join(shipped_models())}."
        )
    if is_on_hub(name):
        return download(str(name))
    if Path(name).is_dir():
        return Path(name)
    models = shipped_models()
    if str(name) not in models:
        raise unknown_name("model or run folder", str(name), models)
    return models[str(name)]


def model_name(name: str | Path, folder: Path) -> str:
    """What a model is called: as its folder, or as on the Hub, with the commit."""
    return pinned(str(name), folder) if is_on_hub(name) else folder.name


def shipped_models() -> dict[str, Path]:
    """The folders of the models that come with the package, by name."""
    with resources.as_file(resources.files("bagcert") / "models") as folder:
        return {config.parent.name: config.parent for config in sorted(folder.glob(f"*/{CONFIG}"))}


def card(name: str | Path) -> dict[str, Any]:
    """What is known about a model, without its weights: recipe, seed, device, data, and its accuracies."""
    return read_card(model_folder(name))
