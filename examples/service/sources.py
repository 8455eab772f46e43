"""Where the features come from: a table in SQLite, and a laboratory behind a slow HTTP service.

``cstc serve model.cstc --extractors sources:sources`` reads this; the two addresses come from the environment.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from urllib.parse import urlencode
from urllib.request import urlopen

from cstc.serving import extractor

MEASURED = ["age", "sex", "bmi", "bp"]
SERUM = ["s1", "s2", "s3", "s4", "s5", "s6"]


@extractor(provides=MEASURED, timeout=1.0)
def clinic(patient: int, features: list[str]) -> list[float]:
    """Only the columns that are wanted; their names come from MEASURED, never from a client."""
    with closing(sqlite3.connect(f"file:{os.environ['CLINIC_DATABASE']}?mode=ro", uri=True)) as database:
        row = database.execute(f"SELECT {', '.join(features)} FROM patients WHERE id = ?", [patient]).fetchone()
    if row is None:
        raise LookupError(f"no patient {patient}")
    return list(row)


@extractor(provides=SERUM, timeout=2.0, retries=1)
def laboratory(patient: int, features: list[str]) -> dict[str, float]:
    query = urlencode({"patient": patient, "values": ",".join(features)})
    with urlopen(f"{os.environ['LABORATORY']}/analyse?{query}", timeout=2.0) as response:
        return json.load(response)


sources = [clinic, laboratory]
