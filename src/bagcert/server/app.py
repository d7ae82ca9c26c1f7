"""The application: its routes, and the page for every other path."""

import asyncio
import base64
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, FastAPI, File, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from bagcert.errors import UsageError
from bagcert.server.attacking import AttackJob, parse_patch
from bagcert.server.images import to_png
from bagcert.server.info import PNG, info_routes, monitoring_routes
from bagcert.server.limits import Limits
from bagcert.server.metrics import Metrics
from bagcert.server.middleware import Middleware
from bagcert.server.model import FAIL_SAFE_PATTERN, FramedPicture, Model, read_fail_safe, to_answer, to_rectangle
from bagcert.server.samples import Sample
from bagcert.server.schemas import ERRORS, AttackAnswer, Certified, RequestError
from bagcert.server.worker import Service

PAGE = Path(__file__).parent / "page"
FAIL_SAFE = (
    "true: abstain unless no patch of threat_original, in the picture's own pixels, can change the class; "
    "a size such as 40x60 (height x width in the picture's own pixels): abstain unless no patch of that size can"
)


def build_app(
    model: Model,
    samples: Sequence[Sample],
    limits: Limits | None = None,
    token: str | None = None,
    hosts: Collection[str] = (),
) -> FastAPI:
    """The server for one model, ready for uvicorn. Without a token it answers to addresses, localhost and `hosts`."""
    bounds, metrics = limits or Limits(), Metrics()
    service = Service(model, bounds, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.close()

    app = FastAPI(
        title="bagcert",
        description="Classifies pictures and proves which answers no patch can change.",
        version=model.info["version"],
        lifespan=lifespan,
        docs_url=None,  # FastAPI's documentation pages load scripts from other servers
        redoc_url=None,
    )
    app.add_middleware(Middleware, limits=bounds, metrics=metrics, token=token, hosts=hosts)
    app.add_exception_handler(RequestValidationError, invalid_value)
    app.include_router(certify_routes(service), responses=ERRORS)
    app.include_router(info_routes(model, samples, bounds))
    app.include_router(monitoring_routes(metrics))
    if model.defense.threat.shapes:
        add_page(app)
    else:
        add_notice(app, str(model.defense.threat))
    return app


def add_notice(app: FastAPI, threat: str) -> None:
    """In place of the page, whose patch is a rectangle that may lie anywhere: it would claim proofs that are not."""

    @app.get("/", response_class=PlainTextResponse, include_in_schema=False)
    async def notice() -> str:
        return f"The page shows rectangles that may lie anywhere, not {threat}. Send pictures to /v1/certify.\n"


def add_page(app: FastAPI) -> None:
    """Serve the page's files for every path without a route. A mount would also answer wrong methods of the routes."""
    files, nothing = StaticFiles(directory=PAGE, html=True), app.router.default

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        await (files if scope["type"] == "http" else nothing)(scope, receive, send)

    app.router.default = page


def certify_routes(service: Service) -> APIRouter:
    """The routes that run the model."""
    router, model, limits = APIRouter(), service.model, service.limits
    most_maps = max(1, limits.score_numbers // model.score_numbers)

    @router.post("/v1/certify")
    async def certify(
        files: Annotated[
            list[UploadFile], File(description="Pictures: PNG, JPEG, WebP, BMP or still GIF", min_length=1)
        ],
        scores: Annotated[bool, Query(description="Include the score maps")] = False,
        fail_safe: Annotated[
            str, Query(description=FAIL_SAFE, json_schema_extra={"pattern": FAIL_SAFE_PATTERN})
        ] = "false",
    ) -> Certified:
        """Return the class of each picture and what is proven about it."""
        if scores and len(files) > most_maps:
            raise RequestError(
                413,
                f"Scores are limited to {most_maps} files per request, but this has {len(files)}. Send several.",
            )
        wanted = read_fail_safe(fail_safe)
        async with service.in_time():
            found = await service.certify(await service.read([file.file for file in files]))
        return Certified(
            model=model.name,
            rule=model.defense.rule.written,
            threat=str(model.defense.threat),
            arithmetic=str(model.program),
            weights_sha256=model.info["weights_sha256"],
            answers=[to_answer(each, scores, wanted) for each in found],
        )

    @router.post("/v1/frame", response_class=Response, responses={200: PNG[200]})
    async def frame(file: Annotated[UploadFile, File(description="One picture")]) -> Response:
        """Return the network's input for a picture, as a PNG file: what the model sees of it."""
        async with service.in_time():
            (framed,) = await service.read([file.file])
        return Response(to_png(framed.pixels), media_type="image/png")

    @router.post("/v1/attack")
    async def attack(
        file: Annotated[UploadFile, File(description="One picture")],
        patch: Annotated[
            str | None, Query(description="Size such as 3x3, up to the served threat, which is the default")
        ] = None,
        steps: Annotated[int, Query(description="Maximum number of steps", ge=1, le=limits.attack_steps)] = 40,
        scores: Annotated[bool, Query(description="Include the score maps")] = False,
    ) -> AttackAnswer:
        """Paint a patch where the proof is weakest, by gradient descent, and certify the attacked picture."""
        try:
            threat = await asyncio.to_thread(parse_patch, patch or model.defense.threat, model.defense, limits)
        except UsageError as error:
            raise RequestError(422, str(error)) from None
        async with service.in_time():
            (framed,) = await service.read([file.file])
            (clean,) = await service.certify([framed])
            result = await service.attack(AttackJob(framed.pixels, threat, steps))
            (attacked,) = await service.certify([FramedPicture(result.pixels, model.image_size)])
        return AttackAnswer(
            patch=str(threat),
            placement=to_rectangle(result.placement),
            steps=result.steps,
            proven=result.proven,
            changed=clean.predicted != attacked.predicted,
            picture=base64.b64encode(to_png(result.pixels)).decode(),
            clean=to_answer(clean, scores, fail_safe=False),
            attacked=to_answer(attacked, scores, fail_safe=False),
        )

    return router


async def invalid_value(_: Request, error: Exception) -> JSONResponse:
    """Report an invalid value in one line, like every other error."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    return JSONResponse({"detail": f"Invalid value for {field}: {first['msg']}."}, 422)
