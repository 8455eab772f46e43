"""How text is to be read, as far as the user says."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Reading", "as_separator"]


@dataclass(frozen=True)
class Reading:
    """What the user says of a CSV file.

    Attributes
    ----------
    separator : str or None
        None: whatever splits the header into most columns.
    encoding : str or None
        None: UTF-8, or what the file names at its start.
    decimal : str
        The decimal point.
    missing : tuple of str
        Texts that stand for a missing value, beside the usual ones.
    """

    separator: str | None = None
    encoding: str | None = None
    decimal: str = "."
    missing: tuple[str, ...] = ()


def as_separator(text: str) -> str:
    """What a user wrote for a separator, as the one character that it is."""
    found = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}.get(text, text)
    if len(found) != 1 or found in '\r\n"' or ord(found) > 127:
        raise ValueError(f"{text!r} is no separator; give one character, or 'tab'")
    return found
