"""What happens without an optional package: one exception, the right extra, for each function that needs one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

import rillet
from rillet.extras import EXTRAS, modules_of

ROOT = Path(__file__).parents[2]

_PAYLOAD = (
    "from rillet.spark.payload.encoder import format_of; from rillet.spark.options import parse; "
    "format_of(parse(dict(url='redis://x', stream='x', payload='{}', schemaRegistry='http://localhost:1')))"
)
# The extra, the module to hide, and a program that needs it.
USES = [
    ("arrow", "pyarrow", "store.stream('s').to_arrow()"),
    ("arrow", "pyarrow", "store.stream('s').add_arrow([])"),
    ("pandas", "pandas", "store.stream('s').to_pandas()"),
    ("pandas", "pyarrow", "store.stream('s').to_pandas()"),
    ("polars", "polars", "store.stream('s').to_polars()"),
    ("polars", "pyarrow", "store.stream('s').to_polars()"),
    ("pipelines", "matplotlib", "store.stream('s').plot()"),
    ("redis", "redis", "store.redis()"),
    ("redis", "redis", "store.redis_async()"),
    ("codecs", "msgspec", "rillet.codecs.msgpack"),
    ("codecs", "msgspec", "rillet.codecs.json_of(list[int])"),
    ("opentelemetry", "opentelemetry", "import rillet.opentelemetry"),
    ("avro", "fastavro", _PAYLOAD.format("avro")),
    ("protobuf", "google.protobuf", _PAYLOAD.format("protobuf")),
    ("registry", "confluent_kafka", _PAYLOAD.format("avro")),
    ("delta", "deltalake", "from rillet.spark.archive.targets import require; require('delta', 'x')"),
]
_PROGRAM = """
import sys
import rillet
for extra, module, code in USES:
    was = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == module}
    sys.modules[module] = None
    try:
        with rillet.open() as store:
            exec(code)
    except rillet.MissingExtra as error:
        assert isinstance(error, ImportError) and isinstance(error, rillet.StoreError)
        print(error.name, error)
    except BaseException as error:
        print(code, repr(error))
    del sys.modules[module]
    sys.modules.update(was)
"""
COMMANDS = [
    ("inspect", "textual", ["top", "{place}"], 2),
    ("completion", "shtab", ["completion", "bash"], 2),
    ("cli", "prompt_toolkit", ["cli", "{place}"], 2),
    ("spark", "pyspark", ["pipeline", "lag"], 2),
    ("metrics", "prometheus_client", ["serve", "--port", "0", "--metrics-port", "19999"], 1),
]
_COMMAND = "import sys; sys.modules[{module!r}] = None; from rillet.cli import main; sys.exit(main({words!r}))"


def ran(program: str) -> subprocess.CompletedProcess[str]:
    folder = str(Path(rillet.__file__).parent.parent)
    return subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": folder}, text=True, capture_output=True,
                          timeout=120)  # fmt: skip


def test_calls_without_their_package() -> None:
    done = ran(f"USES = {USES!r}\n{_PROGRAM}")
    assert done.stderr == ""
    for (extra, module, code), line in zip(USES, done.stdout.splitlines(), strict=True):
        assert line.startswith(f"{module} "), (code, line)
        assert line.endswith(f": pip install 'rillet[{extra}]'"), (code, line)


@pytest.mark.parametrize(("extra", "module", "words", "status"), COMMANDS)
def test_a_command_without_its_package(extra: str, module: str, words: list[str], status: int, tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s"):
        pass
    words = [word.format(place=tmp_path / "s") for word in words]
    done = ran(_COMMAND.format(module=module, words=words))
    assert (done.returncode, done.stderr.count("\n")) == (status, 1), done.stderr
    assert done.stderr.startswith("rillet: ")
    assert done.stderr.endswith(f"needs {module}: pip install 'rillet[{extra}]'\n")


def test_the_extras_are_those_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    packages = {"opentelemetry": "opentelemetry-api", "jsonpath": "python-jsonpath", "google.protobuf": "protobuf",
                "confluent_kafka": "confluent-kafka"}  # fmt: skip
    for extra in EXTRAS:
        names = {re.split("[>=[]", line)[0] for line in declared[extra]}
        assert {packages.get(module, module) for module in modules_of(extra)} <= names
