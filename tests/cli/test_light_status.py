"""To look at a workspace takes none of what makes one: no engine, no HTTP client, no numbers library."""

import json
import subprocess
import sys

from llm_ocr.workspace import Workspace

HEAVY = (
    *("aiohttp", "numpy", "PIL", "pypdfium2", "pyarrow", "datasets", "llm_ocr.engines.pool"),
    "llm_ocr.stages.execute",
)


def test_status_imports_neither_the_stages_nor_their_libraries(tmp_path):
    Workspace.open(str(tmp_path / "w"), create=True).close()
    code = f"""
import json, sys
from llm_ocr.cli import main
code = main(["status", "-w", {str(tmp_path / "w")!r}])
print(json.dumps([code, sorted(sys.modules)]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stderr
    assert [name for name in HEAVY if name in modules] == []
