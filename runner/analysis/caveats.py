"""What the averages of a run do not cover: ``caveats.toml`` has sentences, this file those that add up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from types import MappingProxyType

from packaging.version import InvalidVersion, Version

from harness.declared import finite
from harness.loading.toml_file import read_toml
from harness.schema import Scalar
from runner.analysis.digits import share_text
from runner.analysis.findings import Known
from runner.analysis.results import Result
from runner.analysis.verdicts.compiling import is_warm
from runner.names import counted

NEWEST: Mapping[str, str] = MappingProxyType({"torch": "2.15.0", "torchvision": "0.29.2"})
"""The newest versions that this program was tested with, by ``make versions``."""


def caveats(comparisons: Sequence[Result]) -> tuple[str, ...]:
    """The sentences that hold for this run. A run without records has none."""
    known, tables = [*map(Known, comparisons)], read_toml(Path(__file__).with_suffix(".toml"))
    limits = "; ".join((*_said(tables["limits"], known), *_assumptions(comparisons)))
    sentences = (
        *_said(tables["jobs"], known),
        _warm_caches(comparisons),
        *_said(tables["times"], known),
        untested(c.record.environment for c in comparisons),
        *_remarks(known),
        f"Limits of every such run: {limits}. docs/MEASURING.md has more." if limits else "",
    )
    return tuple(filter(None, sentences))


def _jobs(some: Iterable[Known]) -> int:
    return len({known.record.job.key for known in some})


def _said(table: Mapping[str, Sequence[str]], known: Sequence[Known]) -> Iterator[str]:
    """The sentences of a table of ``caveats.toml``, whose head says what they name."""
    for when, listed, sentence in table.values():
        if cases := [each for each in known if each.holds(when)]:
            names = ("; " if " " in listed else ", ").join(dict.fromkeys(map(listed.format_map, cases)))
            words = {"count": _jobs(cases), "total": _jobs(known), "names": names}
            lines = f"{len(cases)} of {sum(each.comparison.n > 0 for each in known)}"
            beside = int(max(each.comparison.number("prepared_beside") or 0 for each in cases))
            yield sentence.format(**words, lines=lines, beside=beside)


def _assumptions(comparisons: Iterable[Result]) -> Iterator[str]:
    """What intervals of one process assume: ``training: aot_eager 0.4 %, inductor 0.6 % or 2.3 %``."""
    sources: dict[str, dict[str, dict[str, set[float]]]] = {}
    for c in comparisons:
        if c.estimate is not None and c.estimate.assumed_sd is not None:
            modes = sources.setdefault(_calibrated(c.record.calibrated, c.record.started), {})
            compilers = modes.setdefault(c.record.job.case.mode.value, {})
            compilers.setdefault(c.compiler, set()).add(c.estimate.assumed_sd)
    for calibrated, modes in sources.items():
        texts = {
            mode: [f"{n} {' or '.join(map(share_text, sorted(sds)))}" for n, sds in taus.items()]
            for mode, taus in modes.items()
        }
        values = "; ".join(f"{mode}: {', '.join(each)}" for mode, each in texts.items())
        own = f"this machine's variation between processes, calibrated on {calibrated},"
        kind = own if calibrated else "an assumed variation between processes"
        yield f"intervals of one process include {kind} ({values}; --processes=N measures it)"


def _calibrated(calibrated: str, day: str) -> str:
    """``2026-11-20, 3 days before``, of two ISO 8601 dates; "" without a calibration."""
    try:
        age = (date.fromisoformat(day[:10]) - date.fromisoformat(calibrated)).days
    except ValueError:
        return calibrated
    return f"{calibrated}, {counted(age, 'day')} before" if age else f"{calibrated}, the same day"


def _remarks(known: Sequence[Known]) -> Iterator[str]:
    """What suites changed or assumed in their models; each remark once."""
    changed = [(each, each.record.model.remarks) for each in known if each.record.model is not None]
    for remark in dict.fromkeys(remark for _, remarks in changed for remark in remarks):
        count, total = _jobs(each for each, remarks in changed if remark in remarks), _jobs(known)
        share = f" (in {count} of {total} jobs)" if total > 1 else ""
        yield f"{remark[0].upper()}{remark[1:]}{share}."


def _warm_caches(comparisons: Iterable[Result]) -> str:
    looked_up = [c.record.metrics for c in comparisons if is_warm(c.record.metrics) is not None]
    hits = sum(bool(is_warm(metrics)) for metrics in looked_up)
    saved = sum(finite(metrics.get("compile_cache_saved_s")) or 0.0 for metrics in looked_up)
    took = f"compiling what the caches held took about {saved:.0f} s"
    longer = took if saved >= 1 else "with cold caches compilation takes longer"
    said = f"Compile caches were warm for {hits} of {len(looked_up)} compilations: {longer}."
    return said if hits else ""


def untested(environments: Iterable[Mapping[str, Scalar]]) -> str | None:
    """One sentence that names the packages newer than every tested version; None if there are none."""
    all_facts = [*environments]
    newest = {
        name: max((_release(facts.get(name)) for facts in all_facts), default=Version("0")) for name in NEWEST
    }
    packages = [name for name, version in newest.items() if version > Version(NEWEST[name])]
    if not packages:
        return None
    newer, tested = (" and ".join(f"{name} {each[name]}" for name in packages) for each in (newest, NEWEST))
    return f"{newer}: newer than every version that torchduet was tested with (up to {tested})."


def _release(version: Scalar) -> Version:
    """The release, without suffixes of builds and pre-releases: a nightly counts as its release."""
    try:
        return Version(Version(str(version)).base_version)
    except InvalidVersion:
        return Version("0")
