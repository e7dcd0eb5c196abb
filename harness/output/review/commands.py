"""Lines by which a step tells its runner something."""

from __future__ import annotations

__all__ = ["workflow_command"]

from collections.abc import Mapping


def workflow_command(name: str, message: str, properties: Mapping[str, str]) -> str:
    """``::error file=a.cu,line=3::message``, whatever the texts hold, escaped as the runner undoes it:
    actions/toolkit, packages/core/src/command.ts.
    """
    told = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{name} {told}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
