"""Turns exceptions into a record's ``Failure``. A model may raise any exception, even one without a text."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace

from harness.devices import OUT_OF_MEMORY, memory_errors
from harness.schema import Failure, Status

LONGEST = 600  # characters of a message in a record; the log has the whole message


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this error, or one of its causes, means: out of memory on the device or the host."""
    return any(
        isinstance(link, memory_errors())
        or (isinstance(link, RuntimeError) and any(w in words_of(link).lower() for w in OUT_OF_MEMORY))
        for link in with_causes(error)
    )


def describe_failure(error: BaseException, phase: str) -> Failure:
    """The exception as a ``Failure``. A long message is shortened; the log has the whole message."""
    words = words_of(error)
    cause = with_causes(error)[-1]
    if words_of(cause) not in words:
        words = f"{words[: 10 * LONGEST]} (caused by {type(cause).__name__}: {words_of(cause)})"
    words = _without_command(words)
    # a lone surrogate, as in an undecodable file name, cannot be written to the record
    plain = "".join(c if c.isprintable() or c.isspace() else "?" for c in words[: 20 * LONGEST])
    return Failure(kind=type(error).__name__, message=" ".join(plain.split())[:LONGEST], phase=phase)


def _without_command(words: str) -> str:
    """Of a C++ compiler's long output: the first line, and the first error with its file and line."""
    error = re.search(r"(?m)^.*\berror: .*", words)
    if len(words) <= LONGEST or error is None or error.start() == 0:
        return words
    place, colon, fault = error[0].partition(": ")
    return f"{words.partition(chr(10))[0]}: {place.rpartition('/')[2]}{colon}{fault}"


def line_of(error: BaseException) -> str:
    """The exception's message in one line that can be printed, whatever it holds."""
    return describe_failure(error, "").message


def first_line(error: BaseException) -> str:
    """The first line of the message as a part of a sentence; the exception's kind if there is no message."""
    return words_of(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__


def with_causes(error: BaseException, *, contexts: bool = False) -> list[BaseException]:
    """The exception and its chain of causes, and of ``contexts``, which may be a circle.

    Dynamo's error for a backend that failed has the cause as ``inner_exception``.
    """
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and all(link is not other for other in chain):
        chain.append(link)
        context = link.__context__ if contexts and not link.__suppress_context__ else None
        inner = getattr(link, "inner_exception", None)
        link = link.__cause__ or (inner if isinstance(inner, BaseException) else context)
    return chain


def words_of(error: BaseException) -> str:
    """The exception's message. It exists even if ``str(error)`` raises."""
    if isinstance(error, SystemExit) and not isinstance(error.code, str):
        return f"sys.exit({error.code if isinstance(error.code, int) else ''}) was called"
    try:
        return str(error)
    except Exception as broken:
        return f"(str() of this exception raised {type(broken).__name__})"


def log_traceback() -> None:
    """Writes the current exception with its traceback to standard error, if that is still open."""
    for stream in (sys.stderr, sys.__stderr__):
        with contextlib.suppress(Exception):
            traceback.print_exc(file=stream)
            return


class JobFailed(Exception):
    """The job, or one candidate of it, ends here with this status."""

    def __init__(self, status: Status, failure: Failure) -> None:
        super().__init__(failure.message)
        self.status = status
        self.failure = failure


@contextlib.contextmanager
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


def exit_name(code: int) -> str:
    """``SIGSEGV`` for -11, ``exit 3`` for 3."""
    if code >= 0:
        return f"exit {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
