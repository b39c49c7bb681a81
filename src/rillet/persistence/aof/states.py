"""The states of a log (Redis: server.aof_state).

    state     OFF ──open──► ON ──a sync fails──► WAIT_REWRITE ──a base is installed──► ON
                             └──────────────────── close ──────────────────► OFF
              OFF ──CONFIG SET appendonly yes──► WAIT_REWRITE
"""

from __future__ import annotations

OFF, WAIT_REWRITE, ON = range(3)
