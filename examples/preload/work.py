"""A Python script that knows nothing of the recorder. See README.md beside it."""

import json
import sys
import time


def make(n):
    return json.dumps([{"id": i, "name": f"name {i}"} for i in range(n)])


def read(text):
    return {entry["id"]: entry for entry in json.loads(text)}


def main(seconds):
    end = time.monotonic() + seconds
    kept = []
    while time.monotonic() < end:
        kept.append(read(make(500)))
        del kept[:-20]
    print(len(kept))


main(float(sys.argv[1]) if len(sys.argv) > 1 else 60)
