"""What --why hands over: graphs and kernels as scripts without this program, and the text of an issue.

torch's trace (``TORCH_TRACE``) of the copy for looking has each graph as a script that runs alone, the
generated code, and the lines of the model that each kernel computes. ``tlparse`` reads the same folder.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

from runner.runs.why.explain import Why
from runner.runs.why.looked import TRACE
from runner.runs.why.words import cause_lines, verdict_text

FILES = {
    "fx_graph_runnable": "graph-{}.py",
    "inductor_output_code": "kernels-{}.py",
    "inductor_provenance_tracking_kernel_stack_traces": "kernel-lines-{}.json",
}
_ENTRY = re.compile(r"^V\d{4} [^\]]*\] (\{.*\})\n((?:\t.*\n?)*)", re.MULTILINE)
_OF_THIS_MACHINE = re.compile(
    r"^os\.environ\['(?:TORCH_TRACE|\w*CACHE_DIR|_TORCHINDUCTOR\w*)'\].*\n", re.MULTILINE
)
FACTS = ("torch", "python", "cpu", "threads")


def hand_over(folder: Path, why: Why) -> None:
    """``folder``: the job's, with the trace."""
    folder.mkdir(parents=True, exist_ok=True)  # of a run without its logs
    count: Counter[str] = Counter()
    for log in sorted((folder / TRACE).glob("*.log")):
        for head, payload in _ENTRY.findall(log.read_text(encoding="utf-8", errors="replace")):
            entry = json.loads(head)
            name = entry.get("artifact", {}).get("name") or next(iter(entry), "")
            if name in FILES:
                text = _OF_THIS_MACHINE.sub("", re.sub(r"^\t", "", payload, flags=re.MULTILINE))
                (folder / FILES[name].format(count[name])).write_text(text, encoding="utf-8")
                count[name] += 1
    (folder / "issue.md").write_text(issue(why), encoding="utf-8")


def issue(why: Why) -> str:
    """The text of an issue: what is slower, the tested cause, where it was measured, and how to repeat it."""
    record = why.plain.record
    facts = (f"{key} {record.environment[key]}" for key in FACTS if record.environment.get(key) is not None)
    causes = "\n".join(f"- {line}" for line in cause_lines(why))
    return f"""# {why.title}: {verdict_text(why)}

{causes}

Measured in pairs of eager and compiled steps, {why.plain.n} rounds; {", ".join(facts)}.
Other causes are excluded: {", ".join(why.excluded)}.

To repeat the measurement: `{record.reproduce}`

`graph-*.py` are graphs as scripts that need torch alone, `kernels-*.py` is the generated code.
"""
