"""Failures of a session: exceptions of the model's code, of compilers and of devices become ``JobFailed``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from harness.failures import describe_failure, is_out_of_memory, log_traceback
from harness.schema import Failure, Status


class JobFailed(Exception):
    """The job, or one candidate of it, ends here with this status."""

    def __init__(self, status: Status, failure: Failure) -> None:
        super().__init__(failure.message)
        self.status = status
        self.failure = failure


@contextmanager
def attempting(
    phase: str,
    status: Status,
    oom: Status = Status.OOM,
    explain: Callable[[BaseException, str], str] = lambda _, message: message,
) -> Iterator[None]:
    """Turns every exception inside into ``JobFailed`` with ``status``, or ``oom`` if memory ran out.

    ``explain`` may add a sentence on the cause to an exception's message.
    """
    try:
        yield
    except (JobFailed, KeyboardInterrupt):
        raise
    except BaseException as error:  # the model's code may raise anything, also SystemExit
        log_traceback()
        failure = describe_failure(error, phase)
        failure = replace(failure, message=explain(error, failure.message))
        raise JobFailed(oom if is_out_of_memory(error) else status, failure) from error
