"""The optional packages: `require("arrow", "to_arrow")` raises MissingExtra unless the packages of the extra are there.

The names of the extras are those of pyproject.toml. No package is imported here.
"""

from __future__ import annotations

from importlib.util import find_spec

from rillet.errors import MissingExtra

# For each extra: the modules to import, with the name of the package where it differs.
_MODULES = {
    "arrow": {"pyarrow": ""},
    "avro": {"fastavro": ""},
    "cli": {"prompt_toolkit": ""},
    "codecs": {"msgspec": ""},
    "completion": {"shtab": ""},
    "delta": {"pyarrow": "", "deltalake": ""},
    "inspect": {"starlette": "", "uvicorn": "", "textual": ""},
    "json": {"jsonpath": "python-jsonpath"},
    "metrics": {"prometheus_client": ""},
    "opentelemetry": {"opentelemetry": "opentelemetry-api"},
    "pandas": {"pyarrow": "", "pandas": ""},
    "pipelines": {"matplotlib": ""},  # beside those of `spark`
    "polars": {"pyarrow": "", "polars": ""},
    "protobuf": {"google.protobuf": "protobuf"},
    "redis": {"redis": ""},
    "registry": {"confluent_kafka": "confluent-kafka"},
    "spark": {"pyspark": "", "pyarrow": ""},
}
EXTRAS = tuple(_MODULES)


def modules_of(extra: str) -> tuple[str, ...]:
    """Return the modules that an extra installs."""
    return tuple(_MODULES[extra])


def require(extra: str, use: str) -> None:
    """Raise MissingExtra, with the packages and the command that installs them, unless the extra is installed."""
    missing = [module for module in _MODULES[extra] if not _is_there(module)]
    if missing:
        packages = " and ".join(_MODULES[extra][module] or module for module in missing)
        error = MissingExtra(f"{use} needs {packages}: pip install 'rillet[{extra}]'")
        error.name = missing[0]
        raise error


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # a finder or a module without a spec refuses it
        return False
