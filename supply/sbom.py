"""The bill of materials of an installed bagcert[all], as CycloneDX 1.5 JSON: the same bytes for the same packages.

python -m supply.sbom > sbom.json
"""

import json
from importlib.metadata import Distribution
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bagcert.shipped import WEIGHTS_SHA256
from bagcert.version import __version__
from supply.installed import OURS, needed


def component(name: str, found: Distribution) -> dict[str, Any]:
    told = [found.metadata[key] for key in ("License-Expression", "License") if key in found.metadata]
    first = told[0].strip().partition("\n")[0] if told else ""  # some put the whole text there
    about = {"licenses": [{"license": {"name": first}}]} if first else {}
    purl = f"pkg:pypi/{name}@{found.version}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": found.version, "purl": purl, **about}


def weights(name: str, digest: str) -> dict[str, Any]:
    """A shipped network is a part as well."""
    hashes = [{"alg": "SHA-256", "content": digest}]
    return {"type": "machine-learning-model", "bom-ref": f"model:{name}", "name": name, "hashes": hashes}


def bill() -> dict[str, Any]:
    packages = needed(("all",))
    parts = {name: component(name, found) for name, found in packages.items()}
    ours = {"type": "library", "bom-ref": f"pkg:pypi/{OURS}@{__version__}", "name": OURS, "version": __version__}
    links = []
    for name, found in packages.items():
        asked = {canonicalize_name(Requirement(text).name) for text in found.requires or ()}
        links.append(
            {
                "ref": parts[name]["bom-ref"],
                "dependsOn": sorted(parts[each]["bom-ref"] for each in asked & parts.keys()),
            }
        )
    models = [weights(*each) for each in sorted(WEIGHTS_SHA256.items())]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": ours},
        "components": [*parts.values(), *models],
        "dependencies": links,
    }


if __name__ == "__main__":
    print(json.dumps(bill(), indent=1))
