"""A process that the tests fork is as one that `python -m` starts."""

from __future__ import annotations

import json

from harness.spec.suite_data import Loading
from tests import toy
from tests.support import write_files

FACTS = """\
import json, os, sys
from pathlib import Path
print(json.dumps({
    "leads": os.getpid() == os.getsid(0) == os.getpgid(0),
    "parent": os.getppid(),
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "path": sys.path,
    "arguments": sys.argv,
    "files": sorted(os.listdir("/proc/self/fd"), key=int),
}), file=sys.stderr)
"""


def test_a_forked_process_is_as_one_that_is_started(tmp_path, capfd, request):
    folder = write_files(tmp_path, {"suite.py": FACTS + toy.SUITE, **toy.FILES})

    def facts():
        Loading(folder).suite()
        return json.loads(capfd.readouterr().err)

    forked = facts()
    request.getfixturevalue("started_workers")
    assert forked == facts()
