"""junit.xml: a test case for each result, for the test pages of CI servers.

A result that is wrong, unjudged or not compiled is a failure, one that crashed an error; what enters no pass
rate is skipped. Written only if ``--format=junit`` asks for it.
"""

from collections.abc import Mapping
from xml.etree import ElementTree as ET

from runner.analysis.results import Result, Summary
from runner.analysis.texts import failures
from runner.names import case_name, plain, where
from runner.reports.parts.sections import sections

FORMATS, ON_REQUEST = ("junit",), True
COUNTED = {"failure": "failures", "error": "errors", "skipped": "skipped"}  # element -> attribute


def render(summary: Summary) -> Mapping[str, bytes]:
    root = ET.Element("testsuites")
    for section in sections(summary):
        kinds = [*map(kind_of, section.comparisons)]
        counts = {name: str(kinds.count(kind)) for kind, name in COUNTED.items()}
        suite = ET.SubElement(root, "testsuite", {"name": section.title, "tests": str(len(kinds)), **counts})
        for kind, c in zip(kinds, section.comparisons, strict=True):
            name = f"{case_name(c.record.job.case)} {plain(c.compiler)}"
            case = ET.SubElement(suite, "testcase", classname=section.title.replace(", ", "."), name=name)
            if kind:
                own = f"{where(c.record, summary.labels)}: "
                told = [f"{f.title}: {x}" for f in summary.warnings for x in f.cases if x.startswith(own)]
                why = [*told, c.status.value][0]
                ET.SubElement(case, kind, type=c.status.value, message=plain(why))
            ET.SubElement(case, "system-out").text = repr(c)
    return {"junit.xml": ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"}


def kind_of(c: Result) -> str:
    """The element that says why it is no pass; "" for a pass."""
    failed = "error" if failures([c])["crashed"] else "failure" if c.status.counted else "skipped"
    return "" if c.passed else failed
