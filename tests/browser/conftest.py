from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.asv_tree import make_project, publish
from tests.browser.chromium import Site, chromium, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def sample_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The html folder of a small project, published by asv with our publisher."""
    pytest.importorskip("asv")
    root = make_project(tmp_path_factory.mktemp("sample"))
    done = publish(root)
    assert done.returncode == 0, done.stdout
    return root / "html"


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield one browser for all tests: a start takes seconds, and sites are separated by their origins."""
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


@pytest.fixture
def open_site(browser: Any) -> Iterator[Callable[[Path], Site]]:
    """A function that serves a folder and returns it, open in a browser that reaches nothing else."""
    with contextlib.ExitStack() as stack:
        yield lambda html_dir: Site(browser, stack.enter_context(serve(html_dir)))
