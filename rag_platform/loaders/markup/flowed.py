"""Plain text of mails whose long lines were broken for sending (RFC 3676)."""

from __future__ import annotations

from email.message import Message

_SIGNATURE = "-- "


def unflow(part: Message, text: str) -> str:
    """The text of a part with its soft line breaks undone, if it declares `format=flowed`."""
    if str(part.get_param("format", "")).lower() != "flowed":
        return text
    deletes_spaces = str(part.get_param("delsp", "")).lower() == "yes"
    lines: list[tuple[int, str]] = []  # depth of the quote, words
    flows = False
    for line in text.split("\n"):
        words = line.lstrip(">")
        depth = len(line) - len(words)
        words = words.removeprefix(" ")
        signs = words == _SIGNATURE
        before = lines.pop()[1] if flows and not signs and lines[-1][0] == depth else ""
        flows = words.endswith(" ") and not signs
        lines.append((depth, before + (words[:-1] if flows and deletes_spaces else words)))
    return "\n".join(
        f"{'>' * depth} {words}".strip(" ") if words != _SIGNATURE else f"{'>' * depth}{words}"
        for depth, words in lines
    )
