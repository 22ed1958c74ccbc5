"""Decides when a base and what differs from it are joined into a new base.

A release shares the large files of its parent, vectors and catalog, and keeps its differences
beside them, so that an edit writes only those. Every change writes all differences again and every
question reads them, so they are kept small. A new base writes everything.
"""

from __future__ import annotations

# so many chunks may always differ; above, this share of the base, but no more than every small
# change can write again (10,000 chunks: 15 MB of vectors and 30 MB of rows)
FRESH_ROWS = 1_000
FRESH_SHARE = 0.05
FRESH_MOST = 10_000


def outgrows(changed: int, base: int) -> bool:
    """True when that many changed chunks call for a new base, given the size of the old one."""
    return changed > max(FRESH_ROWS, min(FRESH_SHARE * base, FRESH_MOST))
