"""Total, and self and total of every function, of a profile in JSON or in gProfiler's .col: `functions.py FORMAT <FILE`.

Knows the formats as their descriptions say, and nothing of the program that wrote the file. Integers are exact in Python.
"""

import json
import sys


def of_json(text):
    """A total and the stacks, root first, of each sample type."""
    document = json.loads(text)
    assert (document["schema"], document["version"]) == ("profile-recorder.profile", 1)
    names = [frame["name"] for frame in document["frames"]]
    for column in range(len(document["sample_types"])):
        samples = document["samples"]
        yield [([names[frame] for frame in reversed(sample["stack"])], sample["values"][column]) for sample in samples]


def of_col(text):
    """As gProfiler's service reads it: metadata tell what a line begins with, and application and comm are frames, left out here."""
    head, *lines = text.split("\n")
    assert head.startswith("#") and lines.pop() == ""
    metadata = json.loads(head[1:])
    assert metadata["metadata"]["start_time"] <= metadata["metadata"]["end_time"]
    with_application = metadata["application_metadata_enabled"]
    with_container = metadata["metadata"].get("run_arguments", {}).get("profile_api_version") != "v1"
    stacks = []
    for line in lines:
        stack, count = line.rsplit(" ", 1)
        fields = stack.split(";")
        if with_application:
            metadata["application_metadata"][int(fields.pop(0))]
        if with_container:
            fields.pop(0)
        fields.pop(0)
        if fields and fields[0].startswith("appid: "):
            fields.pop(0)
        stacks.append((fields, int(count)))
    yield stacks


def sums(stacks):
    functions = {}
    for stack, value in stacks:
        for name in set(stack):
            functions.setdefault(name, [0, 0])[1] += value
        for name in stack[-1:]:
            functions[name][0] += value
    return {"total": sum(value for _, value in stacks), "functions": functions}


formats = {"json": of_json, "col": of_col}
text = sys.stdin.buffer.read().decode()
json.dump([sums(stacks) for stacks in formats[sys.argv[1]](text)], sys.stdout)
