"""What a model says without what it thinks: models that reason write their thoughts as `<think>…</think>` in front of their answer."""

from __future__ import annotations

from collections.abc import Callable

OPENS, CLOSES = "<think>", "</think>"


def spoken(text: str) -> str:
    """The text behind the thoughts that it begins with, as it stands where there are none; empty where the thoughts never end."""
    rest = text.lstrip()
    if not rest.startswith(OPENS):
        return text
    while rest.startswith(OPENS):
        rest = rest.partition(CLOSES)[2].lstrip()
    return rest


class Listening:
    """Hands a stream on from where its thoughts end; all parts together are what `spoken` leaves of the whole text."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self._held = ""
        self._thinks = self._thought = False
        self.heard = False  # something was handed on

    def add(self, part: str) -> None:
        """Takes the next part. Raises what `on_text` raises."""
        if self.heard:
            self._on_text(part)
            return
        self._held += part
        while True:
            if self._thinks:
                _, end, rest = self._held.partition(CLOSES)
                if not end:
                    self._held = self._held[-len(CLOSES) :]  # the end may come in two parts
                    return
                self._held, self._thinks, self._thought = rest, False, True
            begun = self._held.lstrip()
            if begun.startswith(OPENS):
                self._held, self._thinks = begun.removeprefix(OPENS), True
            elif OPENS.startswith(begun):  # nothing yet, or the beginning of the mark
                return
            else:
                self._say()
                return

    def finish(self) -> None:
        """Hands on what was held back and turned out to be no thought. Raises what `on_text` raises."""
        if self._held.strip() and not self._thinks and not self.heard:
            self._say()

    def _say(self) -> None:
        self.heard = True
        self._on_text(self._held.lstrip() if self._thought else self._held)
