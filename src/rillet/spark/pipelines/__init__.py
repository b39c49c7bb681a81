"""The standard pipelines around streams, each a function over DataFrames and a command, `rillet pipeline NAME`.

    running.py      what their commands share: arguments, a session, a bar, one line at the end

A pipeline's function has the name of its module. The modules import pyspark and pyarrow where they work with them, so
importing this package needs neither.
"""

from __future__ import annotations
