"""What docs/deploy.md says of exported graphs is what was measured."""

import json

from bagcert.stored_models import card
from benchmarks import export


def test_the_table_is_that_of_the_stored_results() -> None:
    page = export.PAGE.read_text(encoding="utf-8")
    assert export.filled(page) == page, "run python -m benchmarks.export"


def test_all_test_images_of_the_shipped_models_were_compared_and_the_page_counts_them_right() -> None:
    models = json.loads(export.RESULTS.read_text(encoding="utf-8"))["models"]
    page = " ".join(export.PAGE.read_text(encoding="utf-8").split())
    for name, found in models.items():
        assert found["weights_sha256"] == card(name)["weights_sha256"]
        agreement = found["agreement"]
        assert agreement["images"] == 10_000
        assert agreement["contradicted"] == agreement["of_them_without_a_score_that_differs"] == 0
        for key in ("scores_that_differ", "certified_by_torch", "certified_by_graph_with_band"):
            assert f"{agreement[key]:,}" in page
