"""Pages under results/: what each measures, needs, and whether it is older than that."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "benchmarks"
# What benchmarks need, by a mark in their source, and whether this machine has it.
NEEDS: dict[str, tuple[str, Callable[[], object]]] = {
    "root": (r"\bsudo ", lambda: os.geteuid() == 0),
    "a GPU": (r"\bCudaExecutor\b", Path("/dev/nvidiactl").exists),
    "MPI (make mpi)": (r"\bfind_mpis?\b", lambda: shutil.which("mpiexec")),
    "PyTorch (make torch)": (r"(?m)^ *import torch\b", lambda: importlib.util.find_spec("torch")),
    "scikit-learn": (r"\bsklearn\b", lambda: importlib.util.find_spec("sklearn")),
    "../shared/data": (r'shared"? ?/ ?"?data', (ROOT.parent / "shared/data").is_dir),
}
# Options that change no row.
_NEUTRAL = r"--(?:processes|cache|save|keep|policy|raw) \S+"
_HEAD = r"# {}\n\n{}\. Commit \w+, [\d-]+, [^\n]+\.\n\n    \S*python {}([^\n]*)\n\n"


@dataclass(frozen=True)
class Page:
    """A page under results/ and the benchmark that writes it.

    Attributes:
        kind: Source of the times, as the page says it.
        arguments: Words of the command that make the page whole.
        before: Commands of benchmarks/ that run first.
        minutes: About how long it takes on two idle cores.
    """

    name: str
    script: Path
    kind: str
    arguments: str
    before: tuple[str, ...]
    minutes: int

    @property
    def text(self) -> str:
        """The page; empty: there is none."""
        path = ROOT / "results" / f"{self.name}.md"
        return path.read_text() if path.exists() else ""

    @property
    def commit(self) -> str:
        """The commit that the page is of; empty: it names none."""
        found = re.search(r"\bCommit (\w+)", self.text)
        return found[1] if found else ""

    @property
    def own(self) -> frozenset[Path]:
        """The files of benchmarks/ that make the figures: code, and data that it names."""
        found: set[Path] = set()
        todo = {self.script, *(HERE / command.split()[0] for command in self.before)}
        while todo:
            found |= todo
            near = {file for each in todo if each.suffix == ".py" for file in _near(each)}
            todo = near - found - {HERE / "report.py"}
        return frozenset(found)

    @property
    def modules(self) -> frozenset[Path]:
        """The modules of tuccl from which those files import."""
        code = [file for file in self.own if file.suffix == ".py"]
        return frozenset().union(*map(_imports, code)) - self.own - {HERE / "report.py"}

    def missing(self) -> list[str]:
        """Return what the benchmark needs that this machine has not."""
        source = "\n".join(file.read_text() for file in self.own if file.suffix == ".py")
        needs = [
            each for each, (mark, has) in NEEDS.items() if re.search(mark, source) if not has()
        ]
        folders = re.findall(r"~\S+", self.arguments)
        return needs + [each for each in folders if not Path(each).expanduser().exists()]

    def defect(self) -> str:
        """Return why the page is not as its whole command writes it; empty: it is."""
        if not self.text:
            return "no page"
        if not git("merge-base", self.commit, "HEAD").startswith(self.commit):
            return "of no commit of this branch"
        script = re.escape(str(self.script.relative_to(ROOT)))
        head = re.match(_HEAD.format(self.name, re.escape(self.kind), script), self.text)
        if not head or self.text.count("ommit ") > 1:
            return "joined by hand"
        defaults = re.findall(r'"(--[\w-]+)"[^\n]*default="?([\w.-]+)', self.script.read_text())
        usual = [rf"{option} {value.replace('_', '')}(?!\S)" for option, value in defaults]
        words = re.sub("|".join([_NEUTRAL, *usual]), "", head[1]).split()
        return "" if words == self.arguments.split() else f"options {' '.join(words)}"

    def changed(self, files: frozenset[Path]) -> list[str]:
        """Return which of ``files`` compute otherwise than at the page's commit."""
        near = [str(file.relative_to(ROOT)) for file in sorted(files & _touched(self.commit))]
        return [name for name in near if _meaning(name, self.commit) != _meaning(name, "")]

    def behind(self) -> int:
        """Return how many commits since the page's touched what it measures."""
        files = [str(file.relative_to(ROOT)) for file in self.own | self.modules]
        count = git("rev-list", "--count", f"{self.commit}..HEAD", "--", *files)
        return int(count or 0)


@cache
def all_pages() -> dict[str, Page]:
    """Return the pages that figures.toml lists, by name, each with its benchmark."""
    table = tomllib.loads((HERE / "figures.toml").read_text())
    found = {}
    for script in sorted(HERE.rglob("*.py")):
        for call in ast.walk(_tree(script)):
            if not isinstance(call, ast.Call) or "publish" not in _names(call.func):
                continue
            words = {word.arg: word.value for word in call.keywords}
            name = ast.literal_eval(words["name"]) if "name" in words else script.stem
            if name in table["minutes"]:
                found[name] = Page(
                    name,
                    script,
                    ast.literal_eval(call.args[1]),
                    table["arguments"].get(name, ""),
                    tuple(table["before"].get(name, ())),
                    table["minutes"][name],
                )
    return dict(sorted(found.items()))


def listed() -> set[str]:
    """Return the names of the stale pages that figures.toml lists, to be run again."""
    return set(tomllib.loads((HERE / "figures.toml").read_text())["stale"])


def git(*words: str) -> str:
    """Return what git prints; empty where it fails."""
    ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.stdout if ran.returncode == 0 else ""


@cache
def _touched(commit: str) -> frozenset[Path]:
    names = git("diff", "--name-only", commit, "--") if commit else git("ls-files")
    return frozenset(ROOT / name for name in names.splitlines())


@cache
def _meaning(name: str, commit: str) -> str:
    """Return a file at ``commit`` (empty: as it lies here) without prose and import lines."""
    text = git("show", f"{commit}:{name}") if commit else (ROOT / name).read_text()
    if not name.endswith(".py"):
        return text
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [each for each in body if not _is_prose(each)]
    return ast.dump(tree)


def _is_prose(node: ast.AST) -> bool:
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return docstring or isinstance(node, ast.Import | ast.ImportFrom)


def _names(function: ast.expr) -> tuple[str, str]:
    return getattr(function, "id", ""), getattr(function, "attr", "")


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


@cache
def _near(file: Path) -> frozenset[Path]:
    """Return the files of benchmarks/ that one there imports, or names as data."""
    names = (
        HERE / name for name in re.findall(r"\w+(?:/\w+)*\.(?:json|tsv|csv)", file.read_text())
    )
    data = {each for name in names for each in (name, HERE / "published" / name.name)}
    return frozenset(
        {each for each in data if each.is_file()}
        | {each for each in _imports(file) if each.is_relative_to(HERE)}
    )


@cache
def _imports(file: Path) -> frozenset[Path]:
    """Return the files of tuccl and benchmarks/ from which ``file`` imports."""
    found: set[Path | None] = set()
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {_home(node.module, each.name) for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {_file_of(each.name) for each in node.names}
    return frozenset(each for each in found if each)


@cache
def _home(module: str, name: str) -> Path | None:
    """Return the file that defines a name, where a package hands it on."""
    file = _file_of(f"{module}.{name}") or _file_of(module)
    if file is not None and file.name == "__init__.py":
        for node in ast.walk(_tree(file)):
            if isinstance(node, ast.ImportFrom) and name in {each.name for each in node.names}:
                return _home(str(node.module), name) if node.module != module else file
    return file


@cache
def _file_of(module: str) -> Path | None:
    folders = _packages(ROOT)
    words = module.replace(".", "/")
    homes = [package for package in folders if f"{words}/".startswith(f"{package}/")]
    home = max(homes, key=len, default="")
    stem = ROOT / folders[home] / words[len(home) + 1 :] if home else HERE / words
    files = (stem.with_suffix(".py"), stem / "__init__.py", HERE / "peers" / f"{words}.py")
    return next((file for file in files if file.is_file()), None)


@cache
def _packages(root: Path) -> dict[str, str]:
    """Return the folder of each package, as the wheel has it."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    folders: dict[str, str] = project["tool"]["scikit-build"]["wheel"]["packages"]
    return folders
