"""Limits for reading questions, each with its source. Settings of users are in config/."""

from __future__ import annotations

from typing import Final

# --- rules for filters, preferences and commands --------------------------------------------------
MAX_RULED_CHARS: Final = 400  # of a question; a longer text is a passage. Chosen by hand
MAX_INFERRED_DAYS: Final = 36_500  # of a period that ends now: a century. Chosen by hand
