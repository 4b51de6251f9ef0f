"""The note on versions that are newer than any tested, and where the tested ones are listed."""

from collections.abc import Mapping

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from harness.schema import Scalar
from runner.analysis.caveats import NEWEST, untested
from tests.versions.environments import PINNED, TABLE


def pins(package: str) -> list[Version]:
    requirements = [Requirement(text) for row in TABLE for text in row.requirements if row.name != PINNED]
    return [
        Version(next(iter(one.specifier)).version)
        for one in requirements
        if one.name == package and str(one.specifier).startswith("==")
    ]


@pytest.mark.parametrize("package", NEWEST)
def test_the_newest_tested_is_what_make_versions_tests(package: str) -> None:
    assert Version(NEWEST[package]) == max(pins(package))


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"torch": None, "torchvision": None},
        {"torch": "2.0.1+cu117"},
        {"torch": f"{NEWEST['torch']}+cu132", "torchvision": NEWEST["torchvision"]},
        {"torch": "a build of my own"},
    ],
)
def test_nothing_is_said_of_what_was_tested_or_is_older(environment: Mapping[str, Scalar]) -> None:
    assert untested([environment]) is None


@pytest.mark.parametrize("version", ["3.1.0", "3.1.0+cu140", "3.1.0.dev20270101+cpu", "3.1.0a0+git1234"])
def test_a_newer_torch_is_named(version: str) -> None:
    sentence = untested([{"torch": "2.11.0"}, {"torch": version}])
    assert sentence == (
        "torch 3.1.0: newer than every version that torchduet was tested with "
        f"(up to torch {NEWEST['torch']})."
    )
