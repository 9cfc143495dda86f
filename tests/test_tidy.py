"""Rules of style and layout as tests: sizes, unused modules, documents that match the code."""

from __future__ import annotations

import ast
import importlib
import re
import struct
from pathlib import Path
from typing import TypeGuard

import grimp
import pytest

from tests.broker.handlers.test_controller_requests import CASES

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "odradek"
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 900
GENERATED = SOURCE / "protocol" / "messages"

CODE = sorted(
    path
    for folder in ("src", "tests", "benchmarks", "conformance", "testkit")
    for path in (ROOT / folder).rglob("*.py")
    if GENERATED not in path.parents and ".cache" not in path.parts
)
PRODUCT = [path for path in CODE if SOURCE in path.parents]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", CODE, ids=_name)
def test_file_and_its_functions_stay_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= FILE_LINES_MAX, f"{_name(path)} is over {FILE_LINES_MAX} lines"
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert not long, f"{_name(path)}: {', '.join(long)}"


@pytest.mark.parametrize("path", PRODUCT, ids=_name)
def test_module_has_a_docstring(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not tree.body or ast.get_docstring(tree), f"{_name(path)} has no docstring"


def test_no_module_is_an_orphan() -> None:
    """Every module is imported by another module, or is an entry point that is listed here."""
    entry_points = {
        "__main__",
        "protocol.generate",
        "protocol.interpret",  # the oracle of the property tests
        "protocol.show",
        "testing.pytest_plugin",
        "log.cleaner.worker",  # a process of its own
        "pipeline.jobs.ingest",
        "consumers.zookeeper",  # a library for programs
    }
    text = "\n".join(path.read_text(encoding="utf-8") for path in PRODUCT)
    listed = r"[^\n]*|\([^)]*"  # on one line, or on many in parentheses
    orphans = []
    for path in PRODUCT:
        if path.name == "__init__.py":
            continue
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        if module in entry_points or module.startswith("broker.handlers."):
            continue
        package, _, name = module.rpartition(".")
        dotted = f"odradek.{module}" if not package else f"odradek.{package}.{name}"
        imported = re.search(rf"(from|import) {re.escape(dotted)}\b", text) or (
            re.search(rf"from odradek\.{re.escape(package)} import ({listed})\b{name}\b", text)
            if package
            else re.search(rf"from odradek import [^\n]*\b{name}\b", text)
        )
        if imported is None:
            orphans.append(module)
    assert not orphans


@pytest.mark.parametrize("folder", ["testkit", "benchmarks", "conformance"])
def test_shared_code_is_imported_from_testkit_alone(folder: str) -> None:
    """These packages import the product, testkit and themselves, but not each other."""
    others = {"tests", "testkit", "benchmarks", "conformance", "examples"} - {folder, "testkit"}
    pattern = re.compile(rf"^\s*(?:from|import) ({'|'.join(sorted(others))})\b", re.M)
    found = {
        _name(path): pattern.findall(path.read_text("utf-8"))
        for path in CODE
        if (ROOT / folder) in path.parents
    }
    assert not {name: modules for name, modules in found.items() if modules}


def test_every_api_has_a_handler_file_with_its_versions_and_a_test() -> None:
    from odradek.broker.requests.apis import APIS, INTER_BROKER_APIS

    handlers = SOURCE / "broker" / "handlers"
    tests = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    tests |= {f"test_{handler}" for handler in CASES}
    for api in APIS + INTER_BROKER_APIS:
        path = handlers / f"{api.handler}.py"
        document = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        versions = re.search(r"[Vv]ersions? (\d+)(?:-(\d+)| to (\d+))?", document)
        assert versions, f"{path.name} does not say which versions it serves"
        first, last = int(versions[1]), int(versions[2] or versions[3] or versions[1])
        assert (first, last) == (api.min_version, api.highest), path.name
        assert f"test_{api.handler}" in tests, f"{api.handler} has no test file"


def test_every_handler_file_is_in_the_api_table() -> None:
    from odradek.broker.requests.apis import APIS, INTER_BROKER_APIS

    files = {path.stem for path in (SOURCE / "broker" / "handlers").glob("*.py")} - {"__init__"}
    handlers = {api.handler for api in APIS + INTER_BROKER_APIS}
    assert {stem for stem in files if not stem.startswith("_")} == handlers


FILE_MAP_LINE = re.compile(r"\| `(?P<path>[^`]+)` \| (?P<content>.+) \|")
FILE_MAP_LINE_LENGTH_MAX = 130


def _lines_of_the_file_map() -> list[re.Match[str]]:
    """Return the rows of the tables in ARCHITECTURE.md's file map, without their headings."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.split("\n## File map\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    matches = [FILE_MAP_LINE.fullmatch(row) for row in rows]
    assert None not in matches, [row for row, match in zip(rows, matches, strict=True) if not match]
    return [match for match in matches if match]


def test_every_module_has_one_line_in_the_file_map() -> None:
    paths = [line["path"] for line in _lines_of_the_file_map()]
    modules = {str(path.relative_to(SOURCE)) for path in PRODUCT if path.name != "__init__.py"}
    assert len(modules) > 200
    missing = sorted(modules - set(paths))
    assert not missing, f"add a line for {missing} to the file map of ARCHITECTURE.md"
    assert not {path for path in paths if paths.count(path) > 1}


def test_every_path_of_the_file_map_exists() -> None:
    paths = {line["path"] for line in _lines_of_the_file_map()}
    assert not {path for path in paths if not any((at / path).exists() for at in (SOURCE, ROOT))}


def test_lines_of_the_file_map_are_short() -> None:
    lines = _lines_of_the_file_map()
    assert not [each[0] for each in lines if len(each[0]) > FILE_MAP_LINE_LENGTH_MAX]
    assert not [each[0] for each in lines if ";" in each["content"]]


DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def _code_spans(document: Path) -> set[str]:
    """Return the text between backticks, except in blocks of code."""
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    return set(re.findall(r"`([^`\n]+)`", text))


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_modules_that_a_document_names_exist(document: Path) -> None:
    """A document names a module by its path, or by the end of the path: `requests/apis.py`."""
    paths = [f"/{_name(path)}" for path in [*CODE, *(ROOT / "examples").rglob("*.py")]]
    named = {span for span in _code_spans(document) if re.fullmatch(r"[\w/]+\.py", span)}
    placeholders = {span for span in named if "NAME" in span}
    assert not {
        span for span in named - placeholders if not any(p.endswith(f"/{span}") for p in paths)
    }


def _members(node: ast.ClassDef) -> set[str]:
    """Return the public names of a class: methods, fields, attributes of `self`."""
    names = set()
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(each.name)
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            names.add(each.target.id)
        elif isinstance(each, ast.Attribute) and ast.unparse(each.value) == "self":
            names.add(each.attr)
    return names


def _defined_names() -> tuple[dict[str, set[str]], set[str]]:
    """Return the classes of the product and the tests' helpers, with members, and other names."""
    classes: dict[str, set[str]] = {}
    others: set[str] = set()
    helpers = (ROOT / "tests" / "helpers").glob("*.py")
    for path in [*PRODUCT, *GENERATED.glob("*.py"), *helpers]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, set()).update(_members(node))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                others.add(node.name)
        others |= {path.stem, *_top_level_names(path)[1]}
    return classes, others


def test_symbols_that_the_architecture_names_exist() -> None:
    """Symbols are `Class`, `Class.member`, `CONSTANT`, and names with an underscore."""
    foreign = {"RWF_NOWAIT", "Struct", "max_mem"}
    classes, others = _defined_names()
    others |= set[str]().union(*classes.values())
    one_name = r"[A-Z]\w*[a-z]\w*|[A-Z]+(_[A-Z]+)+|[a-z]+(_[a-z]+)+"
    missing = set()
    for span in _code_spans(ROOT / "ARCHITECTURE.md") - foreign:
        name = span.removesuffix("()")
        if member := re.fullmatch(r"([A-Z]\w+)\.(\w+)", name):
            if member[2] not in classes.get(member[1], ()):
                missing.add(span)
        elif re.fullmatch(one_name, name) and name not in classes and name not in others:
            missing.add(span)
    assert not missing, sorted(missing)


RULES_PAGE = ROOT / "docs" / "kafka-semantics.md"
RULE_HEADING = re.compile(r"^### ([A-Z]\d+)\. .+$", re.M)
RULE_TEST = re.compile(r"^- `([\w/]+\.py)::(test_\w+)`$", re.M)
CITED_RULES = re.compile(r"\brules?\s+((?:[A-Z]\d+(?:,\s+|\s+and\s+|\s+or\s+)?)+)", re.IGNORECASE)


def _rules_of_kafka() -> dict[str, str]:
    """Return the text of each rule of the page by its number."""
    parts = RULE_HEADING.split(RULES_PAGE.read_text(encoding="utf-8"))[1:]
    assert len(parts[::2]) == len(set(parts[::2])), "a number stands for two rules"
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_rule_of_kafka_names_existing_tests() -> None:
    """After a rename of a test, correct its name in docs/kafka-semantics.md."""
    rules = _rules_of_kafka()
    assert len(rules) > 60
    assert not [number for number, text in rules.items() if not RULE_TEST.search(text)]
    missing = [
        f"{number}: {file}::{name}"
        for number, text in rules.items()
        for file, name in RULE_TEST.findall(text)
        if not re.search(rf"def {name}\(", _text_or_nothing(ROOT / "tests" / file))
    ]
    assert not missing, f"correct these names in {_name(RULES_PAGE)}"


CHECKLIST = {
    **{f"r{number}": f"R{number}" for number in range(1, 9)},
    **{f"i{number}": f"I{number}" for number in range(1, 6)},
    **{f"f{number}": f"F{number}" for number in range(1, 3)},
    **{f"e{number}": f"E{number}" for number in range(1, 6)},
    **{"f3_l10": "L10", "f4_f10": "F10", "f5_f11": "F11", "f5_f12": "F12", "f6_l6": "L6"},
    **{f"hazard_{number}": f"Z{number}" for number in range(1, 14)},
    "fencing_old_leader_and_follower": "X1",
    "fencing_old_controller_and_broker": "X2",
    "fencing_old_incarnation_of_a_broker_and_controller": "X3",
    "fencing_old_incarnation_of_a_broker_and_leader": "X3",
    "fencing_deleted_topic_and_its_successor": "X4",
    "fencing_consumer_with_old_metadata_and_leader": "X5",
}
"""Rules of the checklist of replication: the beginning of the names of their tests, and the rule of
the page that names such a test."""


def test_every_rule_of_the_checklist_is_a_test_that_bears_its_name() -> None:
    rules = _rules_of_kafka()
    missing = [
        f"{rule}: test_{prefix}"
        for prefix, rule in CHECKLIST.items()
        if not re.search(rf"::test_{prefix}(_\w+)?`$", rules[rule], re.M)
    ]
    assert not missing, f"name such a test in {_name(RULES_PAGE)}"


def test_no_test_bears_a_number_that_the_checklist_and_the_page_use_differently() -> None:
    known = "|".join(CHECKLIST)
    misleading = [
        f"{_name(path)}: {name}"
        for path in CODE
        if path.is_relative_to(ROOT / "tests")
        for name in re.findall(r"^ *def (test_f[3-6]_\w+)", path.read_text(encoding="utf-8"), re.M)
        if not re.match(rf"test_({known})_", name)
    ]
    assert not misleading


def _text_or_nothing(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def test_every_cited_rule_of_kafka_is_on_its_page() -> None:
    rules = _rules_of_kafka()
    cited = {
        (number, _name(path))
        for path in [*CODE, *DOCUMENTS]
        for group in CITED_RULES.findall(path.read_text(encoding="utf-8"))
        for number in re.findall(r"[A-Z]\d+", group)
    }
    assert ("T5", _name(RULES_PAGE)) in cited, "the pattern finds no citation"
    assert not [each for each in sorted(cited) if each[0] not in rules]


def test_the_product_never_sleeps_or_reads_the_time_by_itself() -> None:
    """Time comes in by constructor: only `clock.py` reads the clock (the tools may, too)."""
    tools = {"cli", "demo", "launcher", "pipeline", "testing"}
    offenders = [
        _name(path)
        for path in PRODUCT
        if path.relative_to(SOURCE).parts[0] not in tools
        and path.name != "clock.py"
        and re.search(r"\btime\.(time|monotonic|sleep|time_ns)\(", path.read_text("utf-8"))
    ]
    assert not offenders


def test_the_product_waits_on_the_timers_of_its_environment() -> None:
    """A test or the simulator controls these timers, but not the time of the event loop."""
    tools = {"cli", "client", "demo", "environment", "launcher", "pipeline", "testing"}
    waits = r"(?<!timers)\.call_later\(|\.call_at\(|asyncio\.sleep\((?!0\))|asyncio\.wait_for\("
    offenders = [
        _name(path)
        for path in PRODUCT
        if path.relative_to(SOURCE).parts[0] not in tools
        and re.search(waits, path.read_text("utf-8"))
    ]
    assert not offenders


SYSTEM_MODULES = {
    "ctypes", "fcntl", "gc", "glob", "multiprocessing", "pathlib", "queue", "random", "resource",
    "secrets", "select", "shutil", "signal", "socket", "sqlite3", "subprocess", "tempfile", "time",
    "uuid",
}  # fmt: skip
"""Modules with which code reaches the operating system, or shares state with other brokers."""
HARMLESS = {
    "os": {"O_TRUNC", "path", "strerror"},
    "os.path": {"abspath", "dirname", "join"},
    "threading": {"Condition", "Lock"},
}
"""Names of further modules that reach nothing: constants, texts, paths, uncontended locks."""
SYSTEM_CALLS = {
    "add_reader", "add_writer", "connect_accepted_socket", "create_connection", "create_server",
    "getaddrinfo", "open_connection", "start_server", "to_thread", "add_signal_handler",
}  # fmt: skip
"""Calls of the event loop and of asyncio that reach the operating system."""
REACHES_THE_SYSTEM = {
    "broker/main.py": {  # the process
        "add_signal_handler", "os._exit", "os.environ", "signal", "to_thread",
    },
    "client/blocking.py": {"create_connection", "socket"},  # for commands and tests
    "collector.py": {"gc"},  # the process has one collector, whose thresholds a lock guards
    "log/cleaner/process.py": {"os.environ", "os.pathsep", "subprocess"},  # by constructor
    "log/cleaner/worker.py": {  # a process of its own
        "open", "os._exit", "os.chdir", "os.getpid", "os.getsid", "os.nice", "queue",
        "threading.Event", "threading.Thread",
    },
    "metadata/store/sqlite.py": {"pathlib", "sqlite3"},  # the store comes by constructor
    "metadata/store/zookeeper.py": {"threading.Event"},  # the same
    "metadata/store/zookeeper_client.py": {"create_connection"},  # kazoo's own socket
    "net/sender.py": {"socket"},  # constants
    "protocol/generate.py": {"pathlib"},  # a command
    "protocol/spec.py": {"pathlib"},  # for that command
}  # fmt: skip
"""Modules that use the operating system without a port, with the names that they use."""


def _system_uses(node: ast.AST) -> set[str]:
    """Return the names with which a node of a module reaches the operating system."""
    if isinstance(node, ast.Import):
        return {each.name for each in node.names} & SYSTEM_MODULES
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        names = {each.name for each in node.names} - HARMLESS.get(module, set())
        return ({module} & SYSTEM_MODULES) | {f"{module}.{n}" for n in names if module in HARMLESS}
    if isinstance(node, ast.Attribute):
        owner = ast.unparse(node.value)
        if owner in HARMLESS:
            return set() if node.attr in HARMLESS[owner] else {f"{owner}.{node.attr}"}
        return {node.attr} & SYSTEM_CALLS
    if isinstance(node, ast.Call):
        call = ast.unparse(node)
        if call.startswith("open("):
            return {"open"}
        return {"run_in_executor"} if ".run_in_executor(None," in call else set()
    return set()


def test_the_broker_reaches_the_operating_system_through_its_environment_alone() -> None:
    """The simulator replaces `environment/`, so it controls all that a broker can observe."""
    tools = {"cli", "demo", "environment", "launcher", "pipeline", "registry", "testing"}
    found: dict[str, set[str]] = {}
    for path in PRODUCT:
        relative = path.relative_to(SOURCE)
        if relative.parts[0] in tools:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if uses := _system_uses(node):
                found.setdefault(str(relative), set()).update(uses)
    assert found == REACHES_THE_SYSTEM


def test_no_file_in_a_shared_directory_has_a_predictable_name() -> None:
    """Another user could create the file first, as a link to one of this user's files.

    `tempfile` makes names that cannot be predicted. A boot note has one, but it is created with
    O_EXCL, opened with O_NOFOLLOW, and read only if this user owns it.
    """
    defaults_of_kafka = {"src/odradek/config/broker_log.py"}
    boot_notes = {"src/odradek/environment/files.py"}
    shared = r"gettempdir\(|[\"'](/var)?/tmp/|[\"']/dev/shm|mktemp\((?!\")"
    offenders = [
        _name(path)
        for path in CODE
        if _name(path) not in defaults_of_kafka | boot_notes | {"tests/test_tidy.py"}
        and re.search(shared, path.read_text("utf-8"))
    ]
    assert not offenders


def _top_level_names(path: Path) -> tuple[set[str], set[str]]:
    """Return the classes and the public constants that a module defines."""
    classes, constants = set(), set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.ClassDef):
            classes.add(node.name)
        elif isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        constants |= {each.id for each in targets if isinstance(each, ast.Name)}
    return classes, {name for name in constants if re.fullmatch(r"[A-Z][A-Z0-9_]+", name)}


def test_class_names_are_unique_in_a_layer() -> None:
    defined: dict[tuple[str, str], list[str]] = {}
    for path in PRODUCT:
        layer = path.relative_to(SOURCE).parts[0]
        for name in _top_level_names(path)[0]:
            defined.setdefault((layer, name), []).append(_name(path))
    assert not {key: paths for key, paths in defined.items() if len(paths) > 1}


def test_constants_have_one_definition() -> None:
    """Two modules must not define the same name with the same value, because they may diverge.

    The version of one API from which a rule holds belongs to its handler.
    """
    defined: dict[tuple[str, str], list[str]] = {}
    for path in PRODUCT:
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        if module == "__main__":
            continue
        for name in _top_level_names(path)[1]:
            if module.startswith("broker.handlers.") and name.endswith(("_FROM", "_VERSION")):
                continue
            value = getattr(importlib.import_module(f"odradek.{module}"), name)
            key = value.format if isinstance(value, struct.Struct) else value
            defined.setdefault((name, repr(key)), []).append(module)
    assert not {key: modules for key, modules in defined.items() if len(modules) > 1}


ONE_CIRCLE = {"configs", "coordinators", "handlers", "requests", "transactions"}
"""The packages of `broker`. `requests.context` names the types of all services, and everything that
serves a request takes that context.
"""


def test_no_package_imports_itself_through_its_siblings() -> None:
    """Imports of the modules in a package, also those for types, count as the package's imports."""
    graph = grimp.build_graph("odradek", cache_dir=None)
    packages = {module.rpartition(".")[0] for module in graph.modules} - {""}
    for package in sorted(packages):
        imports = {
            child: {
                other
                for other in graph.find_children(package) - {child}
                if graph.direct_import_exists(importer=child, imported=other, as_packages=True)
            }
            for child in graph.find_children(package)
        }
        in_circles = {child for child in imports if child in _reached_from(child, imports)}
        expected = ONE_CIRCLE if package == "odradek.broker" else set()
        assert {child.rpartition(".")[2] for child in in_circles} <= expected, package


def _reached_from(start: str, imports: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        found = imports[waiting.pop()] - reached
        reached |= found
        waiting += found
    return reached


def test_no_module_imports_itself_through_others() -> None:
    """Imports for types and inside functions count."""
    graph = grimp.build_graph("odradek", cache_dir=None)
    circles = {
        module: chain
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
        if (chain := graph.find_shortest_chain(imported, module)) is not None
    }
    assert not circles


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """Return the module from which each name of a module is imported, if it is the product's."""
    return {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("odradek.")
        for alias in node.names
        if node.module is not None
    }


MUTATORS = {"add", "append", "clear", "discard", "extend", "insert", "pop", "remove", "setdefault"}


def _written(node: ast.AST) -> list[ast.expr]:
    """Return the expressions that a statement assigns, deletes or changes in place."""
    if isinstance(node, ast.Assign | ast.Delete):
        return [
            each
            for target in node.targets
            for each in (target.elts if isinstance(target, ast.Tuple | ast.List) else [target])
        ]
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        return [node.target]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return [node.func.value] if node.func.attr in MUTATORS else []
    return []


PLAIN_DATA = ("odradek.protocol.messages.", "odradek.cli.")
"""Messages have no owner: who makes one fills it."""


@pytest.mark.parametrize("path", PRODUCT, ids=_name)
def test_no_function_writes_the_fields_of_an_object_of_another_module(path: Path) -> None:
    """The class of an object has the methods that change it. A function only calls them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = _imported_names(tree)
    found = []
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        foreign = {
            argument.arg
            for argument in [*function.args.args, *function.args.kwonlyargs]
            if isinstance(argument.annotation, ast.Name)
            and argument.annotation.id in imported
            and not imported[argument.annotation.id].startswith(PLAIN_DATA)
        }
        for node in ast.walk(function):
            for target in _written(node):
                field = target.value if isinstance(target, ast.Subscript) else target
                if (
                    isinstance(field, ast.Attribute)
                    and isinstance(field.value, ast.Name)
                    and field.value.id in foreign
                ):
                    found.append(f"{function.name}: {ast.unparse(target)}")
    assert not found


USED_ELSEWHERE = {
    "config.inapplicable.inapplicable_names",  # the generated page of configs
    *(
        f"metadata.store.{name}"  # faults for tests and the simulator
        for name in (
            "memory.MemoryStore.lose_next_request",
            "memory.MemoryStore.lose_next_response",
        )
    ),
    "metadata.store.zookeeper_client._OrderedHandler.async_result",  # called by kazoo
    *(
        f"broker.ensemble_check._Response.{name}"  # called by the event loop
        for name in ("connection_lost", "data_received")
    ),
    *(
        f"net.connection.Connection.{name}"  # called by the event loop
        for name in (
            "connection_lost",
            "connection_made",
            "eof_received",
            "pause_writing",
            "resume_writing",
        )
    ),
    "registry.http_server._Server.capture_signals",  # called by uvicorn
    "broker.ensemble_check._Response.connection_lost",  # called by the event loop
    "broker.ensemble_check._Response.data_received",
    # awaits mirrored partitions
    "controller.cluster_controller.ClusterController.raise_leader_epochs",
}


def test_every_function_of_the_broker_is_used_by_the_product() -> None:
    """A function that only tests call belongs to the tests. A name that occurs counts as a use."""
    tools = {"cli", "client", "demo", "launcher", "pipeline", "protocol", "testing"}
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in PRODUCT}
    used = {
        name
        for tree in trees.values()
        for node in ast.walk(tree)
        for name in (
            [node.attr]
            if isinstance(node, ast.Attribute)
            else [node.id]
            if isinstance(node, ast.Name)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    unused = set()
    for path, tree in trees.items():
        relative = path.relative_to(SOURCE).with_suffix("")
        if relative.parts[0] in tools:
            continue
        owners = [(".".join(relative.parts), tree.body)]
        owners += [(f"{owners[0][0]}.{c.name}", c.body) for c in tree.body if _is_class(c)]
        unused |= {
            f"{owner}.{each.name}"
            for owner, body in owners
            for each in body
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            and each.name not in used
            and not each.name.startswith("__")
        }
    assert unused == USED_ELSEWHERE


def _is_class(node: ast.stmt) -> TypeGuard[ast.ClassDef]:
    return isinstance(node, ast.ClassDef)
