"""The server's work apart from HTTP: decode files, and run the pictures of all requests in batches on one model."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO, Generic, TypeVar

import numpy as np
import torch

from bagcert.answers import Answer as PictureAnswer
from bagcert.errors import UsageError
from bagcert.rules import IntegerScores
from bagcert.server.attacking import AttackJob, AttackResult, attack_picture
from bagcert.server.images import read_picture
from bagcert.server.limits import Limits
from bagcert.server.metrics import Metrics
from bagcert.server.middleware import busy
from bagcert.server.model import FramedPicture, Model, to_images
from bagcert.server.schemas import RequestError
from bagcert.threats.threat import Size

Job = TypeVar("Job")
Intermediate = TypeVar("Intermediate")
Answer = TypeVar("Answer")


class QueueFull(Exception):
    """The queue has no room for these jobs."""


@dataclass(frozen=True)
class Stage(Generic[Job, Answer]):
    """One step of the work. It runs in its own thread, in which torch uses `threads` threads."""

    run: Callable[[Job], Answer]
    threads: int


class Batcher(Generic[Job, Intermediate, Answer]):
    """Runs jobs in order of arrival, up to `size` at a time, in two stages that overlap.

    It never waits for a batch to fill: while one batch runs, the next one gathers. The second stage returns one answer
    per job. An answer must not depend on the other jobs of its batch; `bagcert audit` checks this for a model.
    """

    def __init__(
        self,
        first: Stage[list[Job], Intermediate],
        second: Stage[Intermediate, list[Answer]],
        size: int,
        max_waiting: int,
    ) -> None:
        self._first, self._second, self._size, self._most_waiting = first, second, size, max_waiting
        self._waiting: deque[tuple[Job, asyncio.Future[Answer]]] = deque()
        self._woken = asyncio.Event()
        self._closing = False
        # Each stage always has the same thread: torch keeps a thread pool and its size for each thread that calls it.
        self._threads = [
            ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(stage.threads,))
            for stage in (first, second)
        ]
        self._task: asyncio.Task[None] | None = None
        self._finishing: asyncio.Task[None] | None = None  # the batch in the second stage

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Finish the accepted jobs, then stop."""
        self._closing = True
        self._woken.set()
        if self._task is not None:
            await self._task
        for thread in self._threads:
            thread.shutdown()

    async def answers(self, jobs: list[Job]) -> list[Answer]:
        """The answers to the jobs, in their order. Raises `QueueFull` and accepts none of them if too many wait."""
        if self._closing or self.waiting + len(jobs) > self._most_waiting:
            raise QueueFull
        loop = asyncio.get_running_loop()
        entries: list[tuple[Job, asyncio.Future[Answer]]] = [(job, loop.create_future()) for job in jobs]
        self._waiting.extend(entries)
        self._woken.set()
        # A caller that gives up cancels the futures, and the worker then skips their jobs.
        return list(await asyncio.gather(*(future for _, future in entries)))

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._woken.wait()
            self._woken.clear()
            while batch := self._next_batch():
                half = loop.run_in_executor(self._threads[0], self._first.run, [job for job, _ in batch])
                await asyncio.wait([half])
                await self._finished()  # the first stage is at most one batch ahead
                finish = self._finish(half, [future for _, future in batch])
                self._finishing = asyncio.get_running_loop().create_task(finish)
            if self._closing:
                await self._finished()
                return

    async def _finished(self) -> None:
        if self._finishing is not None:
            await self._finishing

    async def _finish(self, half: asyncio.Future[Intermediate], futures: "list[asyncio.Future[Answer]]") -> None:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._threads[1], self._second.run, await half)
        except Exception as error:
            for future in futures:
                if not future.done():
                    future.set_exception(error)
            return
        for future, answer in zip(futures, found, strict=True):
            if not future.done():  # otherwise its request has given up
                future.set_result(answer)

    def _next_batch(self) -> list[tuple[Job, asyncio.Future[Answer]]]:
        batch: list[tuple[Job, asyncio.Future[Answer]]] = []
        while self._waiting and len(batch) < self._size:
            job, future = self._waiting.popleft()
            if not future.done():
                batch.append((job, future))
        return batch


DECODERS = 2  # at the same time: a large picture takes about 100 MB while it is decoded


class Service:
    """A model with its threads and queues."""

    def __init__(self, model: Model, limits: Limits, metrics: Metrics) -> None:
        self.model, self.limits, self.metrics = model, limits, metrics
        self._decoders = ThreadPoolExecutor(DECODERS)
        threads = torch.get_num_threads()
        # The rule adds integers in many small steps, and a second thread only makes the first one wait: on busy cores a
        # batch took 300 to 1,400 ms with two threads, and 30 ms with one.
        network, rule = Stage(self._scores, threads), Stage(self._answers, 1)
        self._images = Batcher(network, rule, model.defense.batch_size, limits.waiting_images)
        # Attacks have their own threads: one takes seconds, and certificates must not wait for it.
        attack, unchanged = Stage(self._attack, threads), Stage(list[AttackResult].copy, 1)  # no second step
        self._attacks = Batcher(attack, unchanged, 1, limits.waiting_attacks)
        metrics.waiting.set_function(lambda: self._images.waiting)

    async def start(self) -> None:
        """Start the threads and run the first pass, which is slow, before any request arrives."""
        self._images.start()
        self._attacks.start()
        size = self.model.image_size
        await self._images.answers([FramedPicture(np.zeros((*size, self.model.channels), np.uint8), size)])

    async def close(self) -> None:
        """Answer the accepted requests, then stop."""
        await self._attacks.close()
        await self._images.close()
        self._decoders.shutdown()

    async def read(self, files: Sequence[IO[bytes]]) -> list[FramedPicture]:
        """Each file as the network's input."""
        if not 1 <= len(files) <= self.limits.files:
            raise RequestError(
                413,
                f"A request may hold 1 to {self.limits.files} files, but this has {len(files)}. Send several requests.",
            )
        loop = asyncio.get_running_loop()
        pictures = []
        for number, file in enumerate(files):
            try:
                pictures.append(await loop.run_in_executor(self._decoders, self._read_one, file))
            except RequestError as error:
                raise RequestError(error.status_code, f"File {number}: {error.detail}") from None
        return pictures

    async def certify(self, pictures: Sequence[FramedPicture]) -> list[PictureAnswer]:
        """The model's answer to each picture."""
        found = await self._images.answers(list(pictures))
        for each in found:
            self.metrics.images.labels(str(each.certified).lower()).inc()
        return found

    async def attack(self, job: AttackJob) -> AttackResult:
        """The picture with a patch where its proof is weakest."""
        return (await self._attacks.answers([job]))[0]

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """Bound the time of one request, decoding included; if it runs out or a queue is full, the server is busy."""
        try:
            async with asyncio.timeout(self.limits.answer_seconds):
                yield
        except (QueueFull, TimeoutError):
            raise busy(self.limits) from None

    def _read_one(self, file: IO[bytes]) -> FramedPicture:
        picture = read_picture(file, self.model.channels, self.limits)
        try:
            return self.model.frame(picture)
        except UsageError as error:  # too small for a model that never scales pictures
            raise RequestError(422, str(error)) from None

    def _scores(self, pictures: list[FramedPicture]) -> tuple[IntegerScores, list[Size]]:
        self.metrics.batches.observe(len(pictures))
        scores = self.model.scores(to_images([each.pixels for each in pictures]))
        return scores, [each.original for each in pictures]

    def _answers(self, scored: tuple[IntegerScores, list[Size]]) -> list[PictureAnswer]:
        """Scores are integers, so threads and batches change nothing here."""
        return self.model.defense.answers(*scored)

    def _attack(self, jobs: list[AttackJob]) -> list[AttackResult]:
        return [attack_picture(self.model, job) for job in jobs]
