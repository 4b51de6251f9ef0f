"""Explanations, traces, disturbances; and that no metric runs inside a timed sample, or costs a result."""

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch._dynamo.guards import CheckFunctionManager

from harness import counters, metrics
from harness.metrics import call, disturbance, explain, generated, observing, trace
from harness.schema import BASELINE, Extras
from harness.worker import environment
from tests.factories import Patch, known
from tests.worker.planted import CPU
from tests.worker.test_session import job, opened

EVERYTHING = Extras(explain=True, profiler_trace=True)


pytestmark = pytest.mark.usefixtures("fresh_compiler")


def number(value: object) -> float:
    assert isinstance(value, (int, float))
    return value


# -- explanations --------------------------------------------------------------------------------
def broken(x: torch.Tensor, factor: int) -> torch.Tensor:
    y = torch.sin(x)
    print("in the middle")
    return y * factor


@pytest.mark.parametrize("asked", [True, False])
def test_a_graph_break_names_its_reason_and_line_if_asked(*, asked: bool) -> None:
    compiled = torch.compile(broken, backend="eager")
    with observing("compile", CPU, Extras(explain=asked)) as numbers:
        compiled(torch.ones(2), 2)
    assert (numbers["graph_breaks"], "graph_break_reasons" in numbers) == (1, asked)
    assert number(numbers["compile_dynamo_s"]) > 0
    assert numbers["compile_inductor_s"] is None  # it was not called: not 0 seconds
    if asked:
        (line,) = str(numbers["graph_break_reasons"]).splitlines()
        place = broken.__code__.co_firstlineno + 2
        assert f"tests/worker/test_metrics_why.py:{place}: print" in line
        assert (numbers["recompile_reasons"], numbers["recompiles"]) == (None, 0)


def test_what_another_candidate_compiled_before_is_no_recompilation_of_the_model() -> None:
    """Candidates share a process, and so the code objects of the model."""

    def scaled(x: torch.Tensor, factor: int) -> torch.Tensor:
        return x * factor

    torch.compile(scaled, backend="aot_eager")(torch.ones(2), 2)
    compiled = torch.compile(scaled, backend="eager")
    with observing("compile", CPU, Extras(explain=True)) as numbers:
        compiled(torch.ones(2), 2)
    assert any(compilation.recompile_reason for compilation in counters.compilations()), "torch reports it"
    assert numbers["recompile_reasons"] is None
    assert numbers["recompiles"] == 0
    assert counters.latest_recompilation() == ""
    with observing("compile", CPU, Extras(explain=True)) as numbers:
        compiled(torch.ones(2), 3)
    assert numbers["recompiles"] == 1
    assert "factor == 2" in str(numbers["recompile_reasons"])
    assert "scaled (" in str(numbers["recompile_reasons"])
    assert numbers["graph_break_reasons"] is None


def test_the_numbers_are_of_all_graphs_however_few_torch_keeps() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    compiled, kept = torch.compile(scaled, backend="eager"), torch._dynamo.utils._compilation_metrics.maxlen
    torch._dynamo.utils.set_compilation_metrics_limit(2)
    try:
        with observing("compile", CPU, Extras(explain=True)) as numbers:
            for dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
                compiled(torch.ones(2, dtype=dtype))
        assert numbers["recompiles"] == len(str(numbers["recompile_reasons"]).splitlines()) == 3
        assert len(counters.compilations()) == 2
    finally:
        torch._dynamo.utils.set_compilation_metrics_limit(known(kept))


def test_the_digest_of_code_is_not_of_what_others_have_loaded(monkeypatch: Patch) -> None:
    """A Triton kernel is a module of its own, which a second graph with its code does not load again."""
    codecache: Any = importlib.import_module("torch._inductor.codecache")
    monkeypatch.setattr(codecache.PyCodeCache, "modules", [])
    kernel, tried, graph = (SimpleNamespace(__name__=key, key=key) for key in "ktg")
    tried.call = tried.benchmark_all_configs = graph.call = None
    digests = []
    for loaded in ([kernel, tried, graph], [graph], [kernel]):
        with observing("compile", CPU) as numbers:
            codecache.PyCodeCache.modules.extend(loaded)
        digests.append(numbers.get("generated_code"))
    assert digests[0] == digests[1] is not None
    assert digests[2] is None


def test_at_most_so_many_reasons() -> None:
    assert explain.listed([]) is None
    assert explain.listed(["a", "b", "a"]) == "2x a\nb"
    lines = str(explain.listed(str(i) for i in range(explain.MOST + 5))).splitlines()
    assert len(lines) == explain.MOST + 1
    assert lines[-1] == "and 5 more"


# -- traces --------------------------------------------------------------------------------------
def test_the_kernels_that_changed_most_come_first() -> None:
    eager = {f"k{i}": 1.0 for i in range(20)} | {"mm": 5.0, "gone": 2.0}
    compiled = {f"k{i}": 1.0 for i in range(20)} | {"mm": 1.5, "fused": 3.0}
    lines = str(trace.changes(eager, compiled)).splitlines()
    assert lines[0] == "mm: 5.000 -> 1.500 ms (-3.500)"
    assert lines[1] == "fused: 0.000 -> 3.000 ms (+3.000)"
    assert lines[2] == "gone: 2.000 -> 0.000 ms (-2.000)"
    assert len(lines) == trace.SHOWN
    assert trace.changes({}, {}) is None


def test_ranges_that_hold_others_are_no_operators() -> None:
    for name in (
        *("CompiledFunction", "TorchDynamo Cache Lookup", "Torch-Compiled Region: 0/0", "AddmmBackward0"),
        *("autograd::engine::evaluate_function: AddmmBackward0", "torch::autograd::AccumulateGrad"),
    ):
        assert trace.leaf(name) is None
    assert trace.leaf("aten::mm") == "aten::mm"
    assert trace.leaf("## Call CompiledFxGraph fv7gw4247 ##") == trace.GENERATED_NAME


@pytest.mark.slow
def test_traces_are_written_for_every_variant(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    ready = opened(replace(job(accuracy=False), extras=EVERYTHING))
    ready.prepare("aot_eager")
    numbers = ready.conclude()
    lines = str(numbers["aot_eager"]["kernel_changes"]).splitlines()
    assert all("ms (" in line for line in lines)
    names = {line.rsplit(": ", 1)[0] for line in lines}
    assert names
    assert [name for name in names if not name.startswith("aten::")] == []
    assert "kernel_changes" not in numbers.get(BASELINE, {})
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == ["trace-aot_eager.json", "trace-baseline.json"]
    events = json.loads((tmp_path / "trace-baseline.json").read_text())["traceEvents"]
    products = [e for e in events if e.get("name") == "aten::addmm"]
    assert products
    assert trace.trace_file("a/b c") == "trace-a_b_c.json"


# -- disturbances --------------------------------------------------------------------------------
def test_stolen_time_is_read_or_unknown() -> None:
    assert disturbance.stolen_s("cpu  1 2 3 4 5 6 7 250 9 10\ncpu0 1 2") == 2.5
    assert disturbance.stolen_s("cpu  0 0 0 0 0 0 0 0 0 0\n") is None
    assert disturbance.stolen_s("") is None


# -- what metrics may not do ---------------------------------------------------------------------
def module_that(**names: Any) -> ModuleType:
    module = ModuleType("made_up")
    vars(module).update(names)
    return module


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_metric_that_fails_costs_itself(when: str, monkeypatch: Patch) -> None:
    @contextmanager
    def failing(device: torch.device, numbers: dict[str, Any]) -> Iterator[None]:
        if when == "after":
            yield
        raise RuntimeError(when)

    good = metrics._modules("step", Extras())
    modules = [("bad", module_that(observe=failing)), *good]
    monkeypatch.setattr(metrics, "_modules", lambda *_: iter(modules))
    with observing("step", CPU) as numbers:
        torch.ones(8)
    assert numbers["step_peak_bytes"] == 32
    with pytest.raises(KeyError, match="of the step"), observing("step", CPU):
        raise KeyError("of the step")


class Watch:
    """A clock that notes every function called between its readings."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.spans: list[list[tuple[str, str]]] = []

    def read(self) -> float:
        sys.setprofile(None)
        self.spans.append([])
        now = self._clock()
        sys.setprofile(self._note)
        return now

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.spans[-1].append((frame.f_code.co_filename, frame.f_code.co_name))
        elif event == "c_call":
            self.spans[-1].append(("C", str(getattr(argument, "__qualname__", argument))))


def calls_between_readings(extras: Extras, monkeypatch: Patch) -> list[list[tuple[str, str]]]:
    ready = opened(replace(job(accuracy=False), extras=extras))
    ready.prepare("eager")
    ready.warm_up()
    ready._kept = []  # how many rounds of the warm-up count depends on their times
    watch = Watch(time.perf_counter)
    with monkeypatch.context() as patch:
        for module in ("harness.worker.session", "harness.timing.rounds"):
            patch.setattr(f"{module}.time", SimpleNamespace(perf_counter=watch.read))
        try:
            ready.measure(4)
        finally:
            sys.setprofile(None)
    return watch.spans


def test_metrics_run_no_code_inside_a_timed_sample(monkeypatch: Patch) -> None:
    """The very same calls between every two readings of the clock, whatever is asked for, and none at all
    with only the timed rounds."""
    everything = calls_between_readings(EVERYTHING, monkeypatch)
    plain = calls_between_readings(Extras(), monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(metrics, "_modules", lambda *_: iter(()))
        none = calls_between_readings(Extras(), monkeypatch)
    timed = [span for span in everything if ("C", "run_backward") in span or len(span) > 5]
    assert len(timed) >= 8  # two variants, four rounds
    # the last span goes on after the rounds, into what metrics do then
    assert everything[:-1] == plain[:-1] == none[:-1]
    inside = {file for span in everything[:-1] for file, _ in span}
    assert not [
        file for file in inside if "/harness/metrics/" in file or file.endswith("harness/hardware/nvml.py")
    ]


def test_the_watch_sees_a_metric_that_stays_on(monkeypatch: Patch) -> None:
    """The test above would fail for a metric that is on during the samples."""
    from torch.utils.flop_counter import FlopCounterMode

    @contextmanager
    def staying_on(device: torch.device, numbers: dict[str, Any]) -> Iterator[None]:
        with FlopCounterMode(display=False):
            yield

    plain = calls_between_readings(Extras(), monkeypatch)
    modules = [("on", module_that(observe=staying_on))]
    monkeypatch.setattr(metrics, "_modules", lambda when, _: iter(modules if when == "rounds" else ()))
    assert calls_between_readings(Extras(), monkeypatch)[:-1] != plain[:-1]


def test_the_environment_says_which_allocator_was_really_loaded(tmp_path: Path) -> None:
    file = tmp_path / "maps"
    assert environment._allocator(file) is None
    libraries = {"jemalloc.so.2": "jemalloc", "tcmalloc_minimal.so.4.5": "tcmalloc", "c.so.6": "system"}
    for library, allocator in libraries.items():
        file.write_text(f"7f00-7f01 r-xp 0 0:0 1 /usr/lib/lib{library}\n")
        assert environment._allocator(file) == allocator


def started(program: str) -> subprocess.Popen[bytes]:
    """A Python that runs this, and has printed a line."""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    known(child.stdout).readline()
    return child


def test_the_processor_time_of_compiling_counts_children_that_still_run() -> None:
    """As those of Inductor's pool of compile workers."""
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ntime.sleep(600)"
    with observing("compile", CPU) as numbers:
        child = started(burn)
    child.kill()
    child.communicate()
    assert number(numbers["compile_cpu_s"]) >= 0.25


@pytest.mark.slow
def test_the_peak_of_host_memory_holds_children_that_run_and_the_largest_that_ended() -> None:
    """As those of Inductor's pool, and the C++ compiler."""
    hold = "import time\nheld = b'1' * {mb} * 2**20\nprint(flush=True)\ntime.sleep({seconds})"
    with observing("compile", CPU) as alone:
        pass
    with observing("compile", CPU) as numbers:
        started(hold.format(mb=400, seconds=0)).communicate()
        child = started(hold.format(mb=200, seconds=600))
    child.kill()
    child.communicate()
    assert number(alone["compile_peak_host_bytes"]) > 20 * 2**20
    assert number(numbers["compile_peak_host_bytes"]) > 620 * 2**20
    with observing("compile", CPU) as later:  # of another candidate
        pass
    gone = number(numbers["compile_peak_host_bytes"]) - number(later["compile_peak_host_bytes"])
    assert gone > 500 * 2**20


def test_the_interval_of_a_median_has_95_percent_at_least() -> None:
    """Of the order statistics k and n - 1 - k: the coverage is 1 - 2 P(B <= k), B binomial."""
    from scipy import stats  # only here: an import of a second

    for n in range(6, 200):
        _, low, high = call.median([float(value) for value in range(n)])
        assert low == n - 1 - high
        assert stats.binom.cdf(low, n, 0.5) <= 0.025 or low == 0


def test_a_torch_without_stances_tells_no_cost_of_a_call(monkeypatch: Patch) -> None:
    """torch 2.0 has no torch.compiler; the times of forward and backward are told all the same."""
    monkeypatch.delattr(torch, "compiler")
    nothing: Any = None
    assert call.cost_of_call(nothing, nothing) == {}


def test_guards_below_a_dict_whose_order_counts_are_counted() -> None:
    def forward(parts: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.stack([value + 1 for value in parts.values()]).sum()

    counts = []
    for size in (2, 6):
        torch._dynamo.reset()
        compiled = torch.compile(forward, backend="eager")
        compiled({str(n): torch.ones(n + 2)[:2] for n in range(size)})
        (entry,) = torch._dynamo.eval_frame._debug_get_cache_entry_list(forward)
        counts.append(generated.cost_of(entry.guard_manager, {})[0])
    assert counts[1] >= counts[0] + 4


GRAPH = SimpleNamespace(local_scope={})


@pytest.mark.parametrize(("given", "guards"), [(("code", GRAPH), 3), ((GRAPH,), 3), ((None,), None)])
def test_guards_are_found_in_each_torch(
    given: tuple[Any, ...], guards: int | None, monkeypatch: Patch
) -> None:
    def init(manager: Any, *_: object) -> None:
        manager.guard_manager = None

    monkeypatch.setattr(CheckFunctionManager, "__init__", init)
    monkeypatch.setattr(generated, "cost_of", lambda manager, scope: (3, 1.0))
    make: Any = CheckFunctionManager
    with observing("compile", CPU, Extras(explain=True)) as numbers:
        make(*given)
    assert numbers.get("guards") == guards
