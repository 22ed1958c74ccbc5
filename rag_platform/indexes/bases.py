"""Decides when a base and its changes are merged into a new base.

A release shares the large files of its parent, vectors and catalog, and stores its changes next to
them, so that an edit only writes the changes. Every edit writes all changes again and every
question reads them, so they must stay small.
"""

from __future__ import annotations

# so many chunks may always differ; above, this share of the base, up to a maximum that is still
# cheap to write again (10,000 chunks: 15 MB of vectors and 30 MB of rows)
FRESH_ROWS = 1_000
FRESH_SHARE = 0.05
FRESH_MOST = 10_000


def outgrows(changed: int, base: int) -> bool:
    """True when so many changed chunks need a new base, given the size of the old one."""
    return changed > max(FRESH_ROWS, min(FRESH_SHARE * base, FRESH_MOST))
