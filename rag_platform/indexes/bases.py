"""When what differs from a base is joined with it to a new one.

A release shares the large files of its parent, vectors and catalog, and holds what differs from
them beside them: an edit writes that and no more. Every change writes what differs again and every
question looks there too, so it is kept small; a new base writes everything.
"""

from __future__ import annotations

# so many chunks may always differ; above, this share of the base, but no more than every small
# change can write again (10,000 chunks: 15 MB of vectors and 30 MB of rows)
FRESH_ROWS = 1_000
FRESH_SHARE = 0.05
FRESH_MOST = 10_000


def outgrows(changed: int, base: int) -> bool:
    """True when so many chunks differ from a base of so many that it is written anew."""
    return changed > max(FRESH_ROWS, min(FRESH_SHARE * base, FRESH_MOST))
