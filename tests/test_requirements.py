"""What the measuring jobs install: exact, by hash, whole, the same for any choice of extras."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from itertools import product

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from harness.ci.requirements import chosen_extras, composed, extras_of, extras_with, measuring_extras, pins_of
from harness.errors import UsageError
from harness.suite.loader import discover, load
from tests.support import ROOT

if sys.version_info < (3, 11):
    import tomli as tomllib
else:
    import tomllib

OTHERS = {"asv", "counters", "cuda", "dask", "dev", "docs", "parquet", "pytest", "sanitize"}
"""Extras that ship no package to kernels: asv is in the base, PyCUDA has no wheels, toolkits have CUPTI."""
OWN = ROOT / ".github" / "requirements" / "measure.txt"
RUNNERS = [
    {"python_version": python, "python_full_version": f"{python}.0", "platform_machine": machine}
    | {"sys_platform": "linux", "os_name": "posix", "platform_python_implementation": "CPython"}
    for python, machine in product(("3.10", "3.11", "3.12", "3.13", "3.14"), ("x86_64", "aarch64"))
]
# Read here, when tests are collected: later on no HARNESS_* variable of the user's reaches a test.
ASK_INDEX = bool(os.environ.get("HARNESS_ASK_INDEX"))
"""Whether pip may be asked for every file: hundreds of megabytes from the package index."""


def extras_of_the_project() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: dict[str, list[str]] = project["optional-dependencies"]
    return found


def pinned(extras: tuple[str, ...]) -> list[Requirement]:
    return [Requirement(pin) for pin in pins_of(composed(extras).decode())]


def installed_on(runner: dict[str, str], extras: tuple[str, ...]) -> dict[str, str]:
    """Versions by name: each package has one."""
    found: dict[str, set[str]] = {}
    for pin in pinned(extras):
        if pin.marker is None or pin.marker.evaluate(runner):
            found.setdefault(pin.name, set()).update(each.version for each in pin.specifier)
    assert not {name: versions for name, versions in found.items() if len(versions) > 1}
    return {name: versions.pop() for name, versions in found.items()}


def asked(requirements: list[str], runner: dict[str, str], extra: str = "") -> list[Requirement]:
    found = map(Requirement, requirements)
    return [each for each in found if not each.marker or each.marker.evaluate(runner | {"extra": extra})]


def test_every_extra_of_the_project_is_shipped_or_brings_no_kernel_anything():
    assert set(extras_of_the_project()) == {*measuring_extras(), *OTHERS}


def test_every_line_is_a_pin_with_hashes_or_says_what_the_file_is():
    content = composed(measuring_extras()).decode()
    left = content
    for pin in pins_of(content).values():
        left = left.replace(pin, "")
    assert all(line.startswith("#") for line in left.splitlines())
    assert "://" not in content
    assert re.findall(r"^-", content, re.MULTILINE) == []


@pytest.mark.parametrize("extra", measuring_extras())
@pytest.mark.parametrize(
    "runner", RUNNERS, ids=lambda each: f"{each['python_version']}-{each['platform_machine']}"
)
def test_an_extra_s_own_requirements_are_pinned_for_every_runner(extra, runner):
    there = installed_on(runner, (extra,))
    for wanted in asked(extras_of_the_project()[extra], runner):
        assert wanted.specifier.contains(there[wanted.name], prereleases=True)


@pytest.mark.parametrize("extra", ["", *measuring_extras()])
def test_what_the_packages_need_themselves_is_pinned_too(extra):
    """As far as they are installed here in that version: their own words are asked, so that no index is."""
    runner = {**RUNNERS[0], "python_version": "3.11", "python_full_version": "3.11.0"}
    there = installed_on(runner, (extra,) if extra else ())
    followed = 0
    for name in there:
        try:
            if metadata.version(name) != there[name]:
                continue  # another version may need other packages
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        followed += 1
        lacking = {canonicalize_name(need.name) for need in asked(needs, runner)} - there.keys()
        assert not lacking, name
    if not followed:
        pytest.skip("no package is here in the version that is pinned")


def test_every_choice_has_one_version_of_each_package():
    for runner in RUNNERS:
        everything = installed_on(runner, measuring_extras())
        for extra in measuring_extras():
            assert installed_on(runner, (extra,)).items() <= everything.items()


def test_no_kernel_of_this_repository_lacks_a_package_on_its_own_runners():
    extras = extras_of(OWN.read_bytes())
    assert OWN.read_bytes() == composed(extras)
    there = installed_on(RUNNERS[4], extras)
    suites = [load(folder).suite for folder in discover(ROOT, ["kernels/*"])]
    sources = [
        (kernel, *each) for suite in suites for kernel in suite.kernels for each in kernel.sources.items()
    ]
    assert {"cuda", "cpu", "opengl"} <= {backend for _, backend, _ in sources}
    assert "moderngl" in there
    for kernel, _, source in sources:
        for need in () if isinstance(source, str) else map(Requirement, source.needs):
            assert need.specifier.contains(there[need.name], prereleases=True), kernel.name


def test_extras_are_chosen_by_name_in_any_order_and_each_once():
    assert chosen_extras(" tvm,opengl, tvm") == ("opengl", "tvm")
    assert chosen_extras("") == ()


@pytest.mark.parametrize(
    "text", ["nonsense", "tvm,nonsense", "tvm opengl", "../measure", "measure", "asv", "TVM"]
)
def test_what_is_no_extra_is_refused_with_those_that_are(text):
    with pytest.raises(
        UsageError, match="expected some of counters, cpu, libraries, opencl, opengl, pytest, static, tvm"
    ):
        chosen_extras(text)


def test_pycuda_is_refused_with_its_reason():
    with pytest.raises(UsageError, match="PyCUDA has no wheels"):
        chosen_extras("cuda,tvm")


@pytest.mark.parametrize("extras", [(), ("tvm",), ("libraries", "opengl", "tvm")])
def test_a_file_says_which_extras_it_has(extras):
    assert extras_of(composed(extras)) == extras


@pytest.mark.parametrize("content", [b"", b"# With the extras: gone, x\n", b"numpy==1\n", b"\xff"])
def test_a_file_that_says_none_has_none(content):
    assert extras_of(content) == ()


def test_a_package_leads_to_its_extras_however_it_is_written():
    assert extras_with("nvmath_Python") == ("libraries",)
    assert extras_with("ml-dtypes") == ()  # every installation has it
    assert extras_with("numpy") == ()
    assert extras_with("no-such-thing") == ()


@pytest.mark.slow
@pytest.mark.skipif(not ASK_INDEX, reason="HARNESS_ASK_INDEX is not set: pip would fetch every file")
def test_pip_finds_every_file_and_needs_no_other(tmp_path):
    (tmp_path / "measure.txt").write_bytes(composed(measuring_extras()))
    options = ("--dry-run", "--ignore-installed", "--require-hashes", "--only-binary", ":all:")
    pip = [sys.executable, "-m", "pip", "install", *options, "-r", str(tmp_path / "measure.txt")]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
