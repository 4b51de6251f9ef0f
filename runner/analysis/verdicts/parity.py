"""How finely a check of parity judged, in words."""

from __future__ import annotations

from harness.schema import Parity, Record, Status
from runner.analysis.digits import significant

COARSE = 0.1  # share of a tensor's size: a pass that would not have shown such an error is no plain pass
MOST = 10.0  # above this share of a tensor's size, a number says no more
MARK = "*"


def is_coarse(record: Record) -> bool:
    """Whether it passed, and an error of more than ``COARSE`` of some tensor would have passed, too.

    Records of before the rule ``noise`` stay as they were.
    """
    parity = record.parity
    if record.status is not Status.PASS or parity is None:
        return False
    return max(parity.resolution_outputs or 0.0, parity.resolution_gradients or 0.0) > COARSE


def is_plain_pass(record: Record) -> bool:
    """Whether every tensor was judged, at its first look, and none coarsely."""
    parity = record.parity
    whole = parity is None or not (parity.sensitive_tensors or parity.noise_tensors)
    return record.status.passed and whole and not is_coarse(record)


def resolution_text(parity: Parity) -> str:
    """``to 0.01 % (gradients 2 %, 12 sensitive)``: the largest errors that would have passed; "": unknown."""
    first = parity.resolution_outputs
    first = parity.resolution_largest if first is None else first
    if first is None:
        return ""
    beside = []
    if parity.resolution_outputs is not None and parity.resolution_gradients is not None:
        beside.append(f"gradients {percent(parity.resolution_gradients)}")
    if parity.sensitive_tensors:
        beside.append(f"{len(parity.sensitive_tensors)} sensitive")
    return f"to {percent(first)}" + (f" ({', '.join(beside)})" if beside else "")


def percent(share: float) -> str:
    return f"{significant(share * 100, 2)} %" if share <= MOST else f"over {MOST * 100:,.0f} %"
