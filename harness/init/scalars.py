"""Values for the scalars of a suite: all different, and not neutral if the arrays allow it.

A kernel that ignores such a scalar, or swaps two of them, computes a wrong result. Floating-point values lie
between -1 and 1, the range of probabilities and of arguments of a square root. Every floating-point type of
at least 16 bits holds them exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, count

_SIXTY_FOURTHS = (11, 59, 29, 43, 19, 53, 37, 23, 61, 13, 47, 31, 17, 41)
"""Primes, alternately low and high, so that neighbours differ much."""
_SMALL = re.compile(r"(?i)eps(ilon)?\d*|.*_eps(ilon)?|eps_.*|tiny")
_LOW = re.compile(r"(?i)(.*_)?(lo|low|lower|min|minimum|least)(_.*|\d*)|(min|low)[A-Z].*")
_FLAG = re.compile(r"(?i).*(flag|mode|type).*|((.*_)?is|has|use|enable|disable)_.*|axis|dim|causal|.*_dim")
_IN_INDEX = re.compile(r"(?i).*(start|offset|stride|pitch|step|tile|block).*|inc[xyz]|ld[a-z]")


def _primes() -> Iterator[int]:
    """Yield the primes from 3 on."""
    return (number for number in count(3) if all(number % below for below in range(2, number)))


class Values:
    """Returns values for one suite, in the order of its scalars."""

    def __init__(self) -> None:
        self._integers = _primes()
        self._small = _primes()
        self._plain: Iterator[int] = chain(_SIXTY_FOURTHS, count(67, 2))

    def floating(self, name: str) -> tuple[str, str]:
        """Return a value for a floating-point scalar in Python, and the reason for it."""
        if _SMALL.fullmatch(name):
            return f"{next(self._small)} / 1024", "guessed: small, but not too small to show"
        value = f"{next(self._plain)} / 64"
        return (f"-{value}" if _LOW.fullmatch(name) else value), "guessed: say what is usual"

    def integer(self, name: str) -> tuple[str, str]:
        """Return a value for an integer that is not a length, and the reason for it."""
        if _FLAG.fullmatch(name):
            return "1", "guessed: a flag, by its name"
        if _IN_INDEX.fullmatch(name):
            plain = "0" if re.search(r"(?i)start|offset", name) else "1"
            return plain, "guessed: its name says that it is part of an index, which stays within the arrays"
        return str(next(self._integers)), "guessed: its name says that it is no length"
