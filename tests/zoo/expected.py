"""How every animal has to end, for the A/A control (``eager``) and for a compiler (``aot_eager``).

``tests/zoo/README.md`` shows this table; ``tests/cli/test_zoo.py`` holds the command line to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from harness.schema import Status
from runner.engine.launch import LONG_LOG
from tests.zoo.animals import HOSTILE_NAME

CANDIDATES = ("eager", "aot_eager")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Status, and, where they are None not checked, failure's kind, phase, words, a note's, batch."""

    status: Status
    kind: str | None = None
    phase: str | None = None
    note: str | None = None
    says: str | None = None
    batch_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What an animal does, and how each candidate ends."""

    what: str
    endings: Mapping[str, Ending]
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Animals that share a call of the command line."""

    flags: tuple[str, ...]
    slow: bool = True
    processes: int = 1  # auto takes up to ten for an animal that passes: its few rounds decide no verdict


# the longest first, for they run side by side; a limit of time must do for honest steps on a busy machine
GROUPS = {
    "quick": Group(flags=("--fixed-batch",), slow=False),
    "tame": Group(flags=("--fixed-batch",), processes=2),
    "hanging": Group(flags=("--phase-timeout=compile=15", "--phase-timeout=measure=15")),
    "ordinary": Group(flags=("--fixed-batch", "--prepare-ahead=2")),
    "compiled": Group(flags=("--fixed-batch", "--prepare-ahead=2")),
    "wrong": Group(flags=("--fixed-batch",)),
    "early": Group(flags=("--phase-timeout=build=30",)),
    "memory": Group(flags=("--fixed-batch", "--max-memory=2", "--prepare-ahead=2")),
    "halving": Group(flags=("--prepare-ahead=2",)),
    "attacks": Group(flags=("--fixed-batch", "--prepare-ahead=2")),
}

PASS = Ending(status=Status.PASS)
AFTER_A_CRASH = Ending(status=Status.PASS, note="fresh worker after aot_eager ended as crash")
AFTER_A_HANG = Ending(status=Status.PASS, note="fresh worker after aot_eager ended as timeout")
WRONG = Ending(status=Status.FAIL_ACCURACY)
DIFFERS = Ending(status=Status.EAGER_TWO_RUNS_DIFFER)


def fails(kind: str, phase: str = "compile", status: Status = Status.FAIL_TO_RUN) -> Ending:
    return Ending(status=status, kind=kind, phase=phase)


def crash(kind: str | None, phase: str | None = "compile") -> Ending:
    return Ending(status=Status.CRASH, kind=kind, phase=phase)


def hang(phase: str = "compile") -> Ending:
    return Ending(status=Status.TIMEOUT, kind="timeout", phase=phase)


def alone(status: Status, kind: str) -> Ending:
    return Ending(status=status, kind=kind, note="measured alone: with other candidates, eager")


def both(what: str, ending: Ending, group: str = "ordinary") -> Fault:
    """Ends alike for every candidate: the model itself is at fault, or there is nothing to blame."""
    return Fault(what=what, endings=dict.fromkeys(CANDIDATES, ending), group=group)


def only(what: str, ending: Ending, group: str = "compiled") -> Fault:
    """Costs the compiled candidate alone. Where the worker went with it, the control has a fresh one."""
    after = {Status.CRASH: AFTER_A_CRASH, Status.TIMEOUT: AFTER_A_HANG}
    endings = {"eager": after.get(ending.status, PASS), "aot_eager": ending}
    return Fault(what=what, endings=endings, group=group)


ATTACK = crash("invalid reply", None)  # the worker goes on until the parent has read it: the phase is any
LOAD = Status.MODEL_FAIL_TO_LOAD
FIRST, SECOND = Status.EAGER_1ST_RUN_FAIL, Status.EAGER_2ND_RUN_FAIL
TIMED = Status.EAGER_FAIL_TO_RUN
NOT_COMPILED = fails("NotCompiled", status=Status.NOT_COMPILED)
OUT_OF_MEMORY = fails("MemoryError", status=Status.OOM)

EXPECTED: dict[str, Fault] = {
    "tame": both("nothing", PASS, "tame"),
    HOSTILE_NAME: both("has separators, quotes, markup, a formula and an emoji in its name", PASS, "quick"),
    # while it is built
    "lacks_a_library": both("needs a library that is not there", fails("ModuleNotFoundError", "open", LOAD)),
    "raises_on_import": both("imports a module that raises", fails("RuntimeError", "open", LOAD), "tame"),
    "raises_in_build": both("raises while it is built", fails("RuntimeError", "open", LOAD)),
    "interrupts_in_build": both("raises KeyboardInterrupt itself", fails("KeyboardInterrupt", "open")),
    "sys_exit_in_build": both("calls sys.exit while it is built", fails("SystemExit", "open", LOAD)),
    "segfaults_in_build": both("segfaults while it is built", crash("SIGSEGV", "build")),
    "hangs_in_build": both("hangs while it is built", hang("build"), "early"),
    "returns_no_workload": both("builds something that is no model", fails("TypeError", "open", LOAD)),
    "cannot_be_copied": both("holds a lock, so that it cannot be copied", fails("TypeError", "eager", FIRST)),
    # in eager
    "raises_in_eager": both("raises in the first step", fails("RuntimeError", "eager", FIRST), "quick"),
    "raises_without_words": both("raises what has no text", fails("UnprintableError", "eager", FIRST)),
    "raises_at_length": both("raises with 4 MB of control characters", fails("RuntimeError", "eager", FIRST)),
    "raises_on_2nd_run": both("raises in the second eager run", fails("RuntimeError", "eager", SECOND)),
    "raises_on_9th_eager_step": both("raises in eager's timed rounds", alone(TIMED, "RuntimeError")),
    "segfaults_in_eager": both("segfaults in the first step", crash("SIGSEGV", "eager")),
    "segfaults_on_9th_eager_step": both("segfaults in eager's timed rounds", alone(Status.CRASH, "SIGSEGV")),
    "aborts": both("aborts, as a failed C++ assertion does", crash("SIGABRT", "eager")),
    "os_exit": both("ends the process with code 7", crash("exit 7", "eager")),
    "os_exit_0": both("ends the process as if all were well", crash("exit 0", "eager"), "quick"),
    "sys_exit": both("calls sys.exit", fails("SystemExit", "eager", FIRST)),
    "hangs_in_eager": both("loops for ever in Python", hang("eager"), "early"),
    # in the compiler
    "raises_in_compiler": only("raises when traced: Dynamo compiles the loss alone", NOT_COMPILED),
    "raises_in_fake_kernel": only("raises when its shapes are traced", fails("TorchRuntimeError")),
    "no_fake_kernel": only("has an op that compilers cannot trace", fails("TorchRuntimeError"), "wrong"),
    "segfaults_in_compiler": only("segfaults while it is compiled", crash("SIGSEGV")),
    "hangs_in_compiler": only("hangs while it is compiled", hang(), "hanging"),
    "never_compiled": only("is nowhere compiled", NOT_COMPILED, "wrong"),
    "recompiles": only(
        "changes a constant in every step",
        replace(fails("Recompiles", "measure", Status.RECOMPILES), says="module.steps == "),
        "wrong",
    ),
    # in the compiled step
    "raises_in_compiled_step": only("raises in the compiled step", fails("RuntimeError")),
    "raises_in_compiled_backward": only("raises in the compiled backward", fails("RuntimeError")),
    "raises_in_timed_rounds": only("raises in the timed rounds", fails("RuntimeError", "measure"), "wrong"),
    "interrupts_compiled": only("raises KeyboardInterrupt itself", fails("KeyboardInterrupt", "prepare")),
    "segfaults_compiled": only("segfaults in the compiled step", crash("SIGSEGV"), "wrong"),
    "segfaults_in_compiled_backward": only("segfaults in the compiled backward", crash("SIGSEGV")),
    "segfaults_in_timed_rounds": only("segfaults in the timed rounds", crash("SIGSEGV", "measure"), "wrong"),
    "killed_compiled": only("is killed, as for want of memory", crash("SIGKILL")),
    "os_exit_compiled": only("ends the process when compiled", crash("exit 7")),
    "os_exit_0_compiled": only("ends the process when compiled, as if all were well", crash("exit 0")),
    "sys_exit_compiled": only("calls sys.exit when compiled", fails("SystemExit")),
    "hangs_compiled": only("sleeps for ever in the compiled step", hang(), "hanging"),
    "hangs_in_c_compiled": only("sleeps for ever in C, holding the interpreter's lock", hang(), "hanging"),
    "hangs_in_timed_rounds": only("sleeps for ever in the timed rounds", hang("measure"), "hanging"),
    "ignores_sigterm": only("ignores signals and sleeps for ever", hang(), "hanging"),
    # processes and threads
    "leaves_children": both("leaves a child behind", PASS, "quick"),
    "leaves_a_daemon": both("leaves a child in a session of its own behind", PASS),
    "leaves_both_and_hangs": only("leaves both behind, then hangs", hang(), "hanging"),
    "kills_its_parent": only("kills the process that started it", crash("SIGKILL")),
    "forks_and_both_go_on": both("forks, and the child goes on as if it were the worker", PASS, "tame"),
    "hangs_at_exit": both("keeps the interpreter from ending", PASS),
    # memory
    "out_of_memory": both(
        "asks for more memory than there is, at any batch size",
        replace(fails("RuntimeError", "eager", Status.EAGER_1ST_RUN_OOM), note="batch 1 instead of 4"),
        "halving",
    ),
    "out_of_memory_compiled": only("asks for more memory than there is when compiled", OUT_OF_MEMORY),
    "needs_a_small_batch": both(
        "has memory for half the batch",
        replace(PASS, note="batch 2 instead of 4: not enough memory", batch_size=2),
        "halving",
    ),
    "eats_memory_compiled": only("takes memory until --max-memory", OUT_OF_MEMORY, "memory"),
    "children_eat_memory": Fault(
        what="its children together are beyond --max-memory",
        endings={
            "eager": replace(PASS, note="fresh worker after aot_eager ended as OOM"),
            "aot_eager": fails("out of memory", status=Status.OOM),
        },
        group="memory",
    ),
    "leaks_each_step": both("keeps a little memory in every step", PASS),
    # output
    "prints_garbage": both("prints megabytes of bytes, escapes and JSON to both streams", PASS, "tame"),
    "breaks_streams": both("puts broken objects in place of both streams", PASS),
    "breaks_streams_and_raises": only("breaks both streams, then raises", fails("RuntimeError")),
    "closes_files": both("closes descriptors 0, 1 and 2", PASS),
    "closes_files_and_raises": only("closes descriptors 0 to 2, then raises", fails("RuntimeError"), "tame"),
    "closes_everything": only("closes every descriptor, the worker's pipes too", crash("exit 1", "check")),
    "writes_everywhere": only("writes nonsense to every descriptor", crash(None, None)),
    # what the parent reads
    "page_truncate": both("makes its status page empty", crash("SIGBUS", None), "attacks"),
    "page_deep": both("fills its status page with 4,095 `[`", PASS, "attacks"),
    "page_inf": both("writes an infinite number of rounds to its status page", PASS, "attacks"),
    "page_garbage": both("writes random bytes to its status page", PASS, "attacks"),
    "pipe_deep": both("replies with 200,000 `[`", ATTACK, "attacks"),
    "pipe_nan": both("replies with NaN", ATTACK, "attacks"),
    "pipe_wrongtypes": both("replies with values of wrong types", ATTACK, "attacks"),
    "pipe_digits": both("replies with a number of 20,000 digits", ATTACK, "attacks"),
    "pipe_long_line": both("replies with 300 MB without a line end", ATTACK, "attacks"),
    "pipe_binary": only("replies with a megabyte of random bytes", ATTACK, "attacks"),
    "closes_requests": only("closes the pipe of the requests", crash(None, None), "attacks"),
    "removes_its_folder": only("removes the job's folder, then aborts", crash("SIGABRT"), "attacks"),
    "prints_a_gigabyte": both("prints 1 GB", replace(PASS, note=LONG_LOG), "attacks"),
    # what belongs to everybody
    "changes_the_process": both("changes folder, environment, mask and signals in every step", PASS, "tame"),
    "changes_torch": both("changes torch's default dtype, threads and seed in every step", PASS),
    "changes_torch_in_build": both("changes them while it is built: --threads still holds", PASS),
    # values
    "nan": both("gives nothing but NaN, in eager too", Ending(status=Status.CANNOT_JUDGE)),
    "nan_when_compiled": only("gives NaN when compiled", WRONG),
    "wrong_when_compiled": only("is wrong by 1 % when compiled", WRONG, "wrong"),
    "wrong_gradient_when_compiled": only("has gradients wrong by 5 % when compiled", WRONG, "wrong"),
    "wrong_shape_when_compiled": only("gives another shape when compiled", WRONG),
    "wrong_dtype_when_compiled": only("gives another dtype when compiled", WRONG),
    "wrong_from_20th_compiled_step": only("is wrong from its 20th compiled step on", WRONG),
    "different_each_run": both("gives other values in each run", DIFFERS),
    "different_each_step": both("gives other values in each step of a copy, by a counter", PASS, "wrong"),
    "drops_at_random": both("draws random numbers", PASS),
    "nested_output": both("gives a dataclass of a named tuple of a dict of a list", PASS),
    "opaque_output": both("gives an object of its own: loss and gradients are compared", PASS),
    "no_tensors": both("gives no tensor", fails("AttributeError", "eager", FIRST)),
    "mutates_inputs": both("changes its inputs in every step", PASS),
    "mutates_parameters": both("changes its parameters in every step", DIFFERS),
}


def label_of(name: str) -> str:
    return "hostile_name" if name == HOSTILE_NAME else name


def table() -> str:
    """The table of ``tests/zoo/README.md``, in Markdown."""
    lines = ["| model | what it does | `eager` (A/A control) | `aot_eager` | test |", "|---|---|---|---|---|"]
    for name, fault in EXPECTED.items():
        ends = " | ".join(_words(ending) for ending in fault.endings.values())
        lines.append(f"| {label_of(name)} | {fault.what} | {ends} | `test_animal[{label_of(name)}]` |")
    return "\n".join(lines) + "\n"


def _words(ending: Ending) -> str:
    why = ending.kind or ""
    where = f"in {ending.phase}" if ending.phase else ""
    detail = " ".join(part for part in (why, where) if part)
    note = f"; “{ending.note}”" if ending.note else ""
    return f"{ending.status.value}" + (f": {detail}" if detail else "") + note
