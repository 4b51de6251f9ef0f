"""The processes of a job with several ranks (``--ddp``): how rank 0 starts, leads and loses the others.

Rank 0 is the job's worker. It alone answers the parent and judges parity, and tells the other ranks over a
pipe each what to do. A sample ends when its slowest rank has ended. After an observed step, the gradients of
all ranks must have the same bits. The worker ends with a rank that fails or dies, and the ranks with it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any
from weakref import WeakValueDictionary

import torch
import torch.distributed as dist

from harness.backends import load_backend
from harness.counters import forget_sizes
from harness.devices import of, type_of
from harness.failures import JobFailed, exit_name, line_of, log_traceback
from harness.hardware.cpus import usable_cpus
from harness.schema import Failure, Job, Status
from harness.tensors import listed
from harness.timing.step import Step, Variant, seed_everything
from harness.timing.workbench import Workbench
from harness.worker.limits import set_threads
from harness.worker.opening import Opening
from harness.worker.process_cleanup import end_with_parent
from harness.worker.ranks.variants import Bench

HERE, LOOPBACK = "127.0.0.1", "lo" if sys.platform.startswith("linux") else "lo0"
PATIENCE_S = 1.0  # after an error of our own, for the rank that caused it


class RankFailed(RuntimeError):
    """A rank beside this one has failed or died. No later step can run in this process."""


class Team:
    """Rank 0's hold on the other ranks. Make it before this process uses torch: they are forks of it.

    ``given``: the functions ``build`` and ``compilers`` of a session. Any method may raise ``RankFailed``.
    """

    def __init__(self, job: Job, *given: Any) -> None:
        ranks, accelerated = job.protocol.ddp, of(job.device).accelerated
        if job.protocol.threads is None and not accelerated:
            threads = max(1, len(usable_cpus()) // ranks)
            job = replace(job, protocol=replace(job.protocol, threads=threads))
        self.job = job
        self.variants = WeakValueDictionary[int, Variant]()
        self._links, self._processes = list[Connection](), list[Any]()
        self._left, self._held = 0, False  # steps of a sample that are left; whether the others wait to begin
        # a fork cannot use a device that is open in this process
        context: Any = get_context("spawn" if accelerated else "fork")
        for rank in range(1, ranks):
            ours, theirs = context.Pipe()
            self._links.append(ours)
            inherited = () if accelerated else tuple(self._links)
            its = replace(job, device=f"{type_of(job.device)}:{rank}") if accelerated else job
            process = context.Process(target=follow, args=(rank, its, theirs, inherited, *given), daemon=True)
            process.start()
            self._processes.append(process)
            theirs.close()
        with self.together():
            store = _store(ranks)
            for link in self._links:
                link.send(store.port)
            _join(job, 0, store)

    def bench(self, *given: Any) -> Workbench:
        return Bench(*given, ranks=self.job.protocol.ddp, team=self)

    def tell(self, what: str, *arguments: Any) -> None:
        """Calls a method of the other ranks. They drop the variants that this process has dropped."""
        for link in self._links:
            link.send((what, arguments, tuple(self.variants)))

    def announce(self, key: int, steps: int, *, rewind: bool = False) -> None:
        """The next ``steps`` of this variant are a sample. Waits until all ranks are ready for it."""
        with self.together():
            self._left, self._held = steps, True
            self.tell("run", key, steps, rewind)
            self._hear_all()

    def with_others(self, step: Step, key: int) -> Step:
        """``step`` in all ranks. The last of a sample returns when the slowest rank has done it."""

        def ranked() -> tuple[Any, Any]:
            if not self._left:
                self.announce(key, 1)
            with self.together():
                for link in self._links if self._held else ():
                    link.send(None)
                self._left, self._held = self._left - 1, False
                results = step()
                if not self._left:
                    self._hear_all()
            return results

        return ranked

    def compare(self, key: int, ours: dict[str, tuple[int, ...]]) -> None:
        """``JobFailed`` if another rank has other gradients than these."""
        with self.together():
            self.tell("digests", key)
            others = self._hear_all()
        for rank, theirs in enumerate(others, 1):
            names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
            if names:
                words = f"rank {rank} has other gradients than rank 0 after a step: {listed(names)}"
                failure = Failure(kind="RanksDiffer", message=words, phase="check")
                raise JobFailed(Status.FAIL_ACCURACY, failure)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What needs all ranks. An error of another rank is the cause of ours, unless it is the same."""
        try:
            yield
        except RankFailed:
            raise
        except Exception as error:
            for link in wait(self._links, PATIENCE_S):
                try:
                    self._hear(self._links.index(link))  # type: ignore[arg-type] # they are connections
                except RankFailed as theirs:
                    if line_of(error) not in str(theirs):
                        log_traceback()
                        raise theirs from None
            raise

    def _hear_all(self) -> list[Any]:
        return [self._hear(place) for place in range(len(self._links))]

    def _hear(self, place: int) -> Any:
        try:
            well, answer = self._links[place].recv()
        except (EOFError, ConnectionError):
            self._processes[place].join(PATIENCE_S)
            how = exit_name(self._processes[place].exitcode or 0)
            raise RankFailed(f"rank {place + 1} has died ({how})") from None
        if not well:
            raise RankFailed(f"rank {place + 1}: {answer}")
        return answer


def _store(ranks: int, port: int = 0) -> Any:
    """Where the ranks find each other: rank 0 opens a free port (0)."""
    make: Any = vars(dist)["TCPStore"]  # not among the names that torch exports
    return make(HERE, port, ranks, is_master=not port, wait_for_workers=False)


def _join(job: Job, rank: int, store: Any) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    device = of(job.device)
    device.make_current()
    backend = f"cpu:gloo,{device.type}:nccl" if device.accelerated else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=job.protocol.ddp)


def follow(rank: int, job: Job, link: Connection, inherited: Sequence[Connection], *given: Any) -> None:
    """A rank beside rank 0, until rank 0 ends or a call fails. Never returns."""
    end_with_parent(link.fileno())
    for other in inherited:
        other.close()
    try:
        _join(job, rank, _store(job.protocol.ddp, link.recv()))
        member = Member(rank, job, link, *given)
        while True:
            what, arguments, alive = link.recv()
            member.keep(alive)
            getattr(member, what)(*arguments)
    except EOFError:
        pass  # rank 0 has ended
    except BaseException as error:  # the model's code may raise anything
        log_traceback()
        with contextlib.suppress(OSError):
            link.send((False, f"{type(error).__name__}: {line_of(error)}"))
    finally:
        os._exit(0)


class Member:
    """A rank beside rank 0. Its public methods are what rank 0 tells it."""

    def __init__(self, rank: int, job: Job, link: Connection, build: Any, compilers: Any) -> None:
        self._job, self._link, self._compilers = job, link, compilers
        device = torch.device(job.device)
        workload = Opening(job, device, lambda _: None, build).build()
        set_threads(job.protocol.threads)
        self._bench = Bench(job, device, workload, ranks=job.protocol.ddp, rank=rank)
        self._bench.settle()
        self._variants: dict[int, Any] = {}
        gc.disable()

    def keep(self, alive: Sequence[int]) -> None:
        self._variants = {key: variant for key, variant in self._variants.items() if key in alive}

    def make(self, key: int, candidate: str, loss_scale: float, unused: bool) -> None:
        gc.collect()
        self._bench.tidy()
        self._bench.loss_scale = loss_scale
        variant = self._variants[key] = self._bench.parallel(candidate, key, unused=unused)
        if candidate:
            forget_sizes()
            source = self._job.own_compilers.get(candidate, "")
            backend = self._compilers.get(candidate) or load_backend(candidate, source)
            with self._bench.precision.surroundings():
                compiled = backend(variant.program)
            variant.use(compiled.forward, compiled.compile_batch)

    def share(self, key: int) -> None:
        self._variants[key].share()

    def run(self, key: int, steps: int, rewind: bool) -> None:
        """A sample, between an answer that this rank is ready and one that it has done it."""
        variant = self._variants[key]
        gc.collect(1)
        if rewind:
            variant.rewind()
        seed_everything(self._job.protocol.seed)
        self._bench.synchronize()
        self._answer()
        self._link.recv()
        for _ in range(steps):
            variant.step()
        self._bench.synchronize()
        self._answer()

    def digests(self, key: int) -> None:
        self._answer(self._variants[key].digests())

    def _answer(self, value: Any = None) -> None:
        self._link.send((True, value))
