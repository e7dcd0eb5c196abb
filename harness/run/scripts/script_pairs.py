"""Compares any two commits by one of a script's timing calls, for `harness bisect`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from harness.errors import MeasureError, Side
from harness.measure.protocol import SideName
from harness.records.types import DeviceInfo, Toolchain, Verdict, fields_of
from harness.run.bisect.commit_pairs import PairResult, Question, without_case
from harness.run.executables.executable_build import Executable
from harness.run.pair_session import CompareObserver
from harness.run.scripts.compare_scripts import ComparingScripts, ScriptSettings, script_device
from harness.run.scripts.script_files import digest_of, give_script
from harness.system.files import scratch_folder
from harness.system.process import Failed

Export = Callable[[Path, Mapping[SideName, str]], Sequence[Executable]]
"""Copies the files of commits into a folder, builds them, and returns the script's command for each."""
_OF_PAIR = ("margin", "tolerance", "confidence", "budget_s", "seed", "results", "save")


class ScriptPairs:
    """Compares pairs of commits on one device. Both commits run the script of one commit.

    Raises UsageError, DeviceError.
    """

    def __init__(
        self, export: Export, script_from: str, settings: ScriptSettings, observer: CompareObserver
    ) -> None:
        self._export, self._from, self._settings, self._observer = export, script_from, settings, observer
        self.devices: tuple[DeviceInfo, ...] = (script_device(settings.device),)
        self.toolchain = Toolchain(compiler="the script's own")

    def ask(self, asked: Sequence[Question]) -> Iterator[PairResult]:
        for question in asked:
            with scratch_folder() as place:
                yield self._answer(question, place)

    def _answer(self, question: Question, place: Path) -> PairResult:
        given = self._export(place / "script", {"head": self._from})
        sides = self._export(place / "pair", {"base": question.base, "head": question.head})
        for each in sides:
            give_script(each, given[0], always=False)
        base, head = sides
        settings = dataclasses.replace(
            self._settings, device=self.devices[0].spec, **fields_of(question.settings, *_OF_PAIR)
        )
        base_code, head_code = (frozenset([digest_of(each.files)]) for each in sides)
        result = ComparingScripts(base, head, settings, self._observer, [question.case]).run()
        found = PairResult(
            question=question,
            base_code=base_code,
            head_code=head_code,
            interrupted=result.interrupted,
        )
        verdicts = [each for each in result.verdicts if each.status != "failed" or each.kernel != "script"]
        if not verdicts:
            return dataclasses.replace(found, failed=_without(question, result.verdicts))
        verdict = verdicts[0]
        if verdict.status in ("new", "missing"):
            side: Side = "base" if verdict.status == "new" else "head"
            return dataclasses.replace(found, failed=without_case(question, side))
        return dataclasses.replace(found, verdict=verdict)


def _without(question: Question, verdicts: Sequence[Verdict]) -> Failed:
    """Return why the script has no call for the question's case."""
    for each in verdicts:
        return Failed(reason=each.reason, message=each.message, log=each.log, side=each.side)
    raise MeasureError(f"No timing call of the script is {question.case}, at neither commit.")
