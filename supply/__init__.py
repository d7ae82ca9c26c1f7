"""What this project is built from: hashes of everything that is installed to test it, and a bill of materials.

python -m supply.hashes    writes supply/requirements.txt, for pip install --require-hashes
python -m supply.sbom      prints what bagcert[all] needs, as CycloneDX JSON
"""
