"""Hostile input never hurts: nothing is unpickled or run by a shell, no name leaves its folder or cell."""

import ast
import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.codec import to_json
from harness.failures import LONGEST, line_of
from harness.schema import Failure, Job, Mode, Record, Status
from runner import reports
from runner.analysis.derive import summarize
from runner.cli.main import main
from runner.reports import speedup_plot
from runner.store.run_folder import RunFolder
from tests.factories import Capture, Patch, known, make_failure, make_job, make_record
from tests.unit.test_changes import write
from tests.unit.test_house import PRODUCTION, ROOT, sources

HOSTILE = (
    *("../../../../tmp/up", "/etc/passwd", "..", "", "a\x00b", "C:\\windows\\system32"),
    *("two\nlines\r\nthree", "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b31m", "\u202egnp.exe"),
    *('=HYPERLINK("http://x")', "+1-1|cmd", "@SUM(A1)", "\t=1+1", "\uff1d1+1", "<script>alert(1)</script>"),
    *("'\"><img src=x onerror=alert(1)>", "|pipe| `tick` **bold** [a](b) ![a](b)", "[red]rich[/red] [/]"),
    *("$x_1$ \\frac{1}", "half a pair \udcff", "\N{ZEBRA FACE}" * 3, "x" * 5000, "-rf"),
    "%s %n {0} {job.key}",
)


# -- our own sources -----------------------------------------------------------------
LOADERS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "yaml"}
BUILTINS = {"eval", "exec", "__import__"}
OWN = {("harness/timing/state.py", "pickle")}  # of a state that the same process has written
CALLS = {"os.system", "os.popen", "subprocess.getoutput", "torch.load", "torch.jit.load", "np.load"}
NAMES = {call.rpartition(".")[2] for call in BUILTINS | CALLS}
KEYWORDS = {"shell", "trust_remote_code", "allow_pickle"}
SUSPECT = re.compile(rf"\b(?:{'|'.join(LOADERS | NAMES | KEYWORDS)})\b")  # other files need no parsing


def dangers(text: str) -> Iterator[str]:
    """What could run code that came as data."""
    for node in ast.walk(ast.parse(text)) if SUSPECT.search(text) else ():
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".", maxsplit=1)[0] in LOADERS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".", maxsplit=1)[0] in LOADERS:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            called = ast.unparse(node.func) if name in NAMES else ""
            tensors_only = any(
                k.arg == "weights_only" and ast.unparse(k.value) == "True" for k in node.keywords
            )
            if (called in BUILTINS or called in CALLS) and not tensors_only:
                yield called
            for keyword in node.keywords:
                off = isinstance(keyword.value, ast.Constant) and not keyword.value.value
                if keyword.arg in KEYWORDS and not off:
                    yield f"{keyword.arg}={ast.unparse(keyword.value)}"


def test_the_check_for_dangers_sees_them() -> None:
    text = "import pickle\nfrom yaml import load\neval('1')\nos.system('x')\nrun(x, shell=True)\n"
    text += "torch.load(f)\ntorch.load(f, weights_only=True)\n"
    text += "model.eval()\nrun(x, shell=False)\nfrom_pretrained(x, trust_remote_code=flag)\n"
    assert sorted(dangers(text)) == sorted(
        ["pickle", "yaml", "eval", "os.system", "shell=True", "torch.load", "trust_remote_code=flag"]
    )


def test_nothing_that_came_as_data_is_run() -> None:
    paths = [*sources(*PRODUCTION), ROOT / "runner.py"]
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    assert {(path, what) for path, text in texts.items() for what in dangers(text)} == OWN


# -- names -----------------------------------------------------------------------------
def hostile_record(text: str) -> Record:
    """A record that has this text wherever a text may stand."""
    job = make_job(text, suite=text, tags=(text,), config=(f"k={text}",))
    job = replace(job, device=text, dtype=text, candidates=(text,))
    failure = Failure(kind=text, message=text, phase=text, log=text)
    record = replace(make_record(make_job()), job=job, candidate=text)
    parity = known(record.parity)
    return replace(
        record,
        parity=replace(parity, worst=replace(known(parity.worst), name=text, failure=text)),
        metrics={**record.metrics, text: text, "compiled_region": text, "graph_breaks": text},
        model=replace(known(record.model), input_shapes=(text,)),
        environment=dict.fromkeys([*record.environment, text], text),
        failure=failure,
        reproduce=text,
        notes=(text,),
        started=text,
        ended=text,
    )


def check_folder(folder: Path) -> None:
    """Only plain files with plain names, and in them no character that a terminal or a reader obeys."""
    for path in folder.iterdir():
        assert path.is_file()
        assert not path.is_symlink()
        assert all(c.isascii() and (c.isalnum() or c in "._-+") for c in path.name)
        assert len(path.name) < 250
        if path.suffix in (".md", ".txt", ".csv"):
            check_text(path.read_text(encoding="utf-8"))
    for path in folder.glob("*.csv"):
        for row in csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")):
            starts = [unicodedata.normalize("NFKC", cell).lstrip()[:1] for cell in row]
            assert not set(starts) & {"=", "@"}, row
            assert not [c for c in row if c.lstrip()[:1] in {"+", "-"} and not is_number(c)], row
    for path in folder.glob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert "<script>alert(1)" not in text
        assert "<img src=x" not in text


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_text(text: str) -> None:
    assert not [c for c in text if c != "\n" and not c.isprintable()]


@pytest.fixture
def undrawn(monkeypatch: Patch) -> None:
    """Without pictures, which take seconds."""
    texts = [module for module in reports.discover() if not module.__name__.endswith(("plot", "roofline"))]
    monkeypatch.setattr(reports, "discover", lambda: texts)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_no_text_of_a_record_does_harm(tmp_path: Path, capsys: Capture) -> None:
    whole = [hostile_record(text) for text in HOSTILE]
    crashed = [replace(r, status=Status.CRASH, samples=None, parity=None) for r in whole]
    others = [replace(record, job=replace(record.job, dtype="float32")) for record in crashed]
    folder = write(tmp_path / "run", [*whole, *others])
    code = main(["--visualize-logs", str(folder)])
    printed = capsys.readouterr()
    assert code in (0, 1), printed.err
    assert printed.err == ""  # no report failed
    check_text(printed.out)
    check_folder(folder)
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.slow
def test_a_plot_shows_any_name_and_is_one_picture_a_suite_and_dtype() -> None:
    records = [replace(hostile_record(text), job=make_job(text), candidate="eager") for text in HOSTILE]
    jobs = [make_job(mode=Mode.INFERENCE), make_job(dtype="amp"), make_job(suite="/x/more.py")]
    files = speedup_plot.render(summarize([*records, *map(make_record, jobs)]))
    names = ["more_float32", "toys_amp", "toys_float32"]
    assert sorted(files) == [f"{name}.{kind}" for name in names for kind in ("png", "svg")]


@pytest.mark.usefixtures("undrawn")
def test_the_log_that_a_record_names_is_never_read(tmp_path: Path, capsys: Capture) -> None:
    secret = tmp_path / "secret"
    secret.write_text("xyzzy")
    logs = ("../secret", str(secret), "cases/../../secret")
    records = [
        replace(
            hostile_record(f"m{i}"), status=Status.CRASH, failure=replace(make_failure(Status.CRASH), log=log)
        )
        for i, log in enumerate(logs)
    ]
    folder = write(tmp_path / "run", records)
    main(["--visualize-logs", str(folder)])
    printed = capsys.readouterr()
    assert "xyzzy" not in printed.out + printed.err
    assert not [path for path in folder.iterdir() if b"xyzzy" in path.read_bytes()]


@pytest.mark.slow
def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    """Somebody else's run folder may hold links, under any name that we write."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = write(tmp_path / "run", [make_record(make_job())])
    main(["--visualize-logs", str(folder)])
    names = [path.name for path in folder.iterdir() if path.name != "records.jsonl"]
    assert "report.md" in names
    for name in names:
        (folder / name).unlink()
        (folder / name).symlink_to(victim)
        (folder / f".{name}.partial").symlink_to(victim)
    main(["--visualize-logs", str(folder)])
    assert victim.read_text() == "precious"
    assert not [path for path in folder.iterdir() if path.is_symlink()]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_job_of_any_name_stays_in_its_folder(text: str, tmp_path: Path) -> None:
    job = replace(make_job(text, suite=text, config=(text,)), device=text, dtype=text)
    folder = RunFolder.create(tmp_path / "run", [job], [text])
    log = folder.open_case(job)
    assert log.parent.parent == folder.path / "cases"
    assert len(log.parent.name) < 200
    if "\x00" not in text:  # JSON can hold it, a command line cannot
        assert folder.jobs() == (job,)


@pytest.mark.slow
def test_cases_of_any_name_are_listed_on_one_line_each(tmp_path: Path, capsys: Capture) -> None:
    names = [text for text in HOSTILE if text not in ("", "half a pair \udcff")]  # test_probe.py: refused
    suite = tmp_path / "mine.py"
    suite.write_text(
        "from harness.schema import Case\n"
        "def cases(setting):\n"
        "    return [Case(suite=__file__, name=name, mode=setting.mode, batch_size=1,\n"
        f"                 published_batch_size=1, skip=name) for name in {names!a}]\n"
    )
    for words in (["--list"], ["--training", "--print-run-commands"]):
        assert main([*words, f"--suites={suite}"]) == 0
        printed = capsys.readouterr().out
        check_text(printed)
        assert words != ["--list"] or printed.count("\n") == len(names)


def test_a_damaged_plan_is_a_sentence(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "run"
    RunFolder.create(folder, [make_job()], [])
    whole = (folder / "run.json").read_text()
    job = to_json(make_job())
    damaged = (
        *(whole[: len(whole) // 2], "[]", "[" * 100_000, '{"jobs": 3}', '{"jobs": ["\\u001b[31m"]}'),
        json.dumps({"jobs": [{**job, "dtype": ["x"]}]}),
        json.dumps({"jobs": [{**job, "protocol": {"timeout_s": "\x1b[31m" * 1000}}]}),
    )
    for text in damaged:
        (folder / "run.json").write_text(text)
        assert main(["--resume", str(folder)]) == 2, text
        error = capsys.readouterr().err
        assert error.startswith("error: --resume: ")
        assert error.count("\n") == 1
        check_text(error)
        assert len(error) < 1000


def test_jobs_of_different_names_never_share_a_folder() -> None:
    jobs: list[Job] = [make_job(text, suite=suite) for text in HOSTILE for suite in HOSTILE]
    assert len({job.key for job in jobs}) == len(jobs)


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("there are no words for this")


@pytest.mark.parametrize(
    "error", [RuntimeError("\x1b[31m\ud800\0 no\nline\r" * 10_000), UnprintableError(), RuntimeError()]
)
def test_the_words_of_any_exception_can_be_printed_in_one_line(error: Exception) -> None:
    line = line_of(error)
    assert line.encode().decode() == line
    assert line.isprintable()
    assert len(line) <= LONGEST


def test_of_a_compilers_output_the_error_is_shown_and_not_the_command() -> None:
    command = "g++ " + " ".join(f"-I/include/{number}" for number in range(200))
    output = "In file x:\n/tmp/a/main.cpp:7:2: error: conflicting declaration\n/tmp/b.h:1:1: error: too\n"
    cause = RuntimeError(f"C++ compile error\n\nCommand:\n{command}\n\nOutput:\n{output}")
    error = RuntimeError(f"CppCompileError: {cause}")
    error.__cause__ = cause
    line = "CppCompileError: C++ compile error: main.cpp:7:2: error: conflicting declaration"
    assert line_of(error) == line
