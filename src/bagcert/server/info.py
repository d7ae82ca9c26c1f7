"""Routes that do not run the model: what is served, sample pictures, health and metrics."""

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from fastapi import APIRouter, Response
from fastapi import Path as PathParameter

from bagcert.config import write_config
from bagcert.server.images import to_png
from bagcert.server.limits import Limits
from bagcert.server.metrics import CONTENT_TYPE_LATEST, Metrics
from bagcert.server.model import Model
from bagcert.server.samples import Sample
from bagcert.server.schemas import ERRORS, ErrorAnswer, Health, ModelAnswer, RequestError, SampleAnswer

PNG: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}},
    404: {"model": ErrorAnswer, "description": "There is no such sample"},
}


def info_routes(model: Model, samples: Sequence[Sample], limits: Limits) -> APIRouter:
    """What is served, and sample pictures to try."""
    router = APIRouter()
    errors: dict[int | str, dict[str, Any]] = {status: ERRORS[status] for status in (400, 401, 421, 503)}

    @router.get("/v1/model", responses=errors)
    async def about() -> ModelAnswer:
        """Describe the served model, its rule, its threat and the limits of a request."""
        defense = model.defense
        return ModelAnswer(
            name=model.name,
            classes=list(defense.classes),
            height=model.image_size[0],
            width=model.image_size[1],
            channels=model.channels,
            grid=list(defense.scorer.footprint.grid),
            rule=defense.rule.written,
            threat=str(defense.threat),
            threat_in_words=defense.threat.describe(),
            square=defense.square,
            score_unit=defense.scorer.step.unit,
            arithmetic=str(model.program),
            threads=torch.get_num_threads(),
            framing=write_config(defense.framing),
            weights_sha256=model.info["weights_sha256"],
            version=model.info["version"],
            limits={
                "body_bytes": limits.body_bytes,
                "files": limits.files,
                "pixels": limits.pixels,
                "side": limits.side,
                "attack_steps": limits.attack_steps,
            },
        )

    @router.get("/v1/samples", responses=errors)
    async def list_samples() -> list[SampleAnswer]:
        """List the sample pictures."""
        return [SampleAnswer(index=i, name=each.name, url=f"/v1/samples/{i}") for i, each in enumerate(samples)]

    @router.get("/v1/samples/{index}", response_class=Response, responses={**errors, **PNG, 422: ERRORS[422]})
    async def sample(index: Annotated[int, PathParameter(ge=0)]) -> Response:
        """Return one sample picture as a PNG file."""
        if index >= len(samples):
            raise RequestError(
                404, f"There is no sample {index}: they are numbered 0..{len(samples) - 1}. See /v1/samples."
            )
        return Response(to_png(samples[index].pixels), media_type="image/png")

    return router


def monitoring_routes(metrics: Metrics) -> APIRouter:
    """Health and metrics, for operators."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> Health:
        """Answer once the server is up, with the model loaded and warm."""
        return Health(status="ok")

    @router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}, 401: ERRORS[401]})
    async def numbers() -> Response:
        """Return the metrics in Prometheus' text format."""
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return router
