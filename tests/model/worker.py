"""A process with a store that runs the plans of another process: `python -m tests.model.worker OPENING`."""

from __future__ import annotations

import ast
import os
import pickle
import sys
import warnings

if os.environ.get("RILLET_NO_CYTHON"):
    sys.modules["cython"] = None  # type: ignore[assignment]

import rillet
from tests.model.actors import Watchdog, run_plan
from tests.model.history import History


def main() -> None:
    """Run plans until the input ends; then end without closing anything, unless this process is the owner."""
    how, where, options = ast.literal_eval(sys.argv[1])
    warnings.simplefilter("ignore")
    store = rillet.open(where, **options) if how == "open" else rillet.connect(where)
    watchdog = Watchdog(lambda text: print(text, file=sys.stderr, flush=True))
    print("open", flush=True)
    while True:
        try:
            plan, journal = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        watchdog.history = history = History(journal=journal, disturbed=plan.disturbed)
        run_plan(store, plan, history)
        watchdog.history = None
        history.close()
        print("done", flush=True)
    store.close()


if __name__ == "__main__":
    main()
