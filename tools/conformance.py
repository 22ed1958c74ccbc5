"""The official conformance suite over HTTP, against the server as it is and against the same with
the suite's fixtures.

    python tools/conformance.py [--folder .conformance]

Node and the suite are installed into the folder. For each revision of the protocol the server with
fixtures has to pass every scored scenario, and the server as it is has to fail no scenario but
those that `conformance_baseline.yaml` names because they need a fixture, and to fail all of these.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from node_programs import FOLDER, RAG, REPOSITORY, free_port, install, samples, serving

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
REVISIONS = ("2025-11-25", "2026-07-28")
FIXTURES = REPOSITORY / "rag_platform_tests" / "server" / "conformance_server.py"
BASELINE = REPOSITORY / "rag_platform_tests" / "server" / "conformance_baseline.yaml"


def main() -> None:
    """Run everything; the exit code is 1 where something fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=FOLDER)
    folder = parser.parse_args().folder.resolve()
    node, program = install(folder, SUITE, "dist/index.js")
    failed = []
    with samples() as home:
        one, other = free_port(), free_port()
        shipped = [*RAG, "serve", "--http", "--port", str(one)]
        for name, command, port, options in (
            ("with fixtures", [FIXTURES, str(other)], other, []),
            ("as it is", shipped, one, ["--expected-failures", BASELINE]),
        ):
            with serving(command, port) as url:
                for revision in REVISIONS:
                    print(f"\n##### the server {name}, requirements of {revision}", flush=True)
                    suite = [node, program, "server", "--url", url, "--requirements", revision]
                    out = ["--output-dir", home / "results"]
                    if subprocess.run([*suite, *options, *out], cwd=folder).returncode:
                        failed.append(f"{name}, {revision}")
    print(f"\nfailed: {'; '.join(failed)}" if failed else "\neverything scored passes")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
