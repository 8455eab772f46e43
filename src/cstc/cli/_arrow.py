"""pyarrow, which reads and writes tables; where it is missing, the extra that has it is named."""

from __future__ import annotations

try:
    import pyarrow
    import pyarrow.compute as compute
    import pyarrow.csv
    import pyarrow.ipc
    import pyarrow.parquet
except ImportError:
    raise ImportError("reading tables needs pyarrow; install it with: pip install 'cstc[cli]'") from None

__all__ = ["compute", "pyarrow"]
