"""The server's work apart from HTTP: files to pictures, pictures to answers, one model for all requests."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import IO

import numpy as np
import torch

from bagcert.deploy.serving.attacking import AttackJob, AttackResult, attack_picture
from bagcert.deploy.serving.batching import Batcher, Full, Stage
from bagcert.deploy.serving.door import busy
from bagcert.deploy.serving.limits import Limits
from bagcert.deploy.serving.metrics import Metrics
from bagcert.deploy.serving.model import Found, Model, to_images
from bagcert.deploy.serving.pictures import read_picture
from bagcert.deploy.serving.refusing import Refused
from bagcert.deploy.serving.resizing import Pixels, resize
from bagcert.rules import IntegerScores
from bagcert.threats.threat import Size

DECODERS = 2  # at once: a large picture takes some 100 MB while it is decoded


class Service:
    """A model, the threads that work for it, and what waits for them."""

    def __init__(self, model: Model, limits: Limits, metrics: Metrics) -> None:
        self.model, self.limits, self.metrics = model, limits, metrics
        self._decoders = ThreadPoolExecutor(DECODERS)
        threads = torch.get_num_threads()
        # The rule adds whole numbers in many small steps, for which a second thread only makes the first one wait: with
        # two on busy cores it took 300 to 1,400 ms a batch, with one 30.
        network, rule = Stage(self._scores, threads), Stage(model.judge, 1)
        self._images = Batcher(network, rule, model.defense.batch_size, limits.waiting_images)
        # Threads of their own: an attack takes seconds, and certificates must not wait for it.
        attack, shown = Stage(self._attack, threads), Stage(list[AttackResult].copy, 1)  # no second step
        self._attacks = Batcher(attack, shown, 1, limits.waiting_attacks)
        metrics.waiting.set_function(lambda: self._images.waiting)

    async def start(self) -> None:
        """Begin to work; the first pass, which is slow, is over before the first request comes."""
        self._images.start()
        self._attacks.start()
        await self._images.answers([np.zeros((*self.model.image_size, self.model.channels), np.uint8)])

    async def close(self) -> None:
        """Answer what was accepted, then stop."""
        await self._attacks.close()
        await self._images.close()
        self._decoders.shutdown()

    async def read(self, files: Sequence[IO[bytes]]) -> list[tuple[Pixels, Size]]:
        """Each file as a picture of the network's size, and the size it came in."""
        if not 1 <= len(files) <= self.limits.files:
            raise Refused(413, f"expected 1 to {self.limits.files} files, got {len(files)}; send several requests")
        loop = asyncio.get_running_loop()
        pictures = []
        for number, file in enumerate(files):
            try:
                pictures.append(await loop.run_in_executor(self._decoders, self._read_one, file))
            except Refused as refused:
                raise Refused(refused.status_code, f"file {number}: {refused.detail}") from None
        return pictures

    async def certify(self, pictures: Sequence[Pixels]) -> list[Found]:
        """What the model says of each picture."""
        found = await self._images.answers(list(pictures))
        for each in found:
            self.metrics.images.labels(str(each.certified).lower()).inc()
        return found

    async def attack(self, job: AttackJob) -> AttackResult:
        """The picture with a patch at its weakest place."""
        return (await self._attacks.answers([job]))[0]

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """All that one request asks for, decoding included, within its time and while there is room; or a refusal."""
        try:
            async with asyncio.timeout(self.limits.answer_seconds):
                yield
        except (Full, TimeoutError):
            raise busy(self.limits) from None

    def _read_one(self, file: IO[bytes]) -> tuple[Pixels, Size]:
        pixels = read_picture(file, self.model.channels, self.limits)
        return resize(pixels, self.model.image_size), (pixels.shape[0], pixels.shape[1])

    def _scores(self, pictures: list[Pixels]) -> IntegerScores:
        self.metrics.batches.observe(len(pictures))
        return self.model.scores(to_images(pictures))

    def _attack(self, jobs: list[AttackJob]) -> list[AttackResult]:
        return [attack_picture(self.model, job) for job in jobs]
