#!/usr/bin/env python3
"""An engine that takes profiles by push.v1, OTLP and Parca's WriteRaw: receiver.py FILE [--port N] [--flaky] [--tls CERTIFICATE KEY]

Prints its port. Each profile that it takes is a line of JSON in FILE, decoded with Google's protobuf, OpenTelemetry's own messages and Parca's own client, not with anything of ours. With --flaky most
requests end badly: the connection is cut before the request was read or in the middle of it, the answer is 429 or 500, or never comes, though the profile may have been taken. It
is a proxy too: CONNECT requests are passed on and noted.
"""
import argparse
import base64
import gzip
import http.server
import itertools
import json
import os
import select
import socket
import ssl
import struct
import subprocess
import threading
import time

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

arguments = argparse.ArgumentParser()
arguments.add_argument("file")
arguments.add_argument("--port", type=int, default=0)
arguments.add_argument("--flaky", action="store_true")
arguments.add_argument("--tls", nargs=2)
arguments = arguments.parse_args()

# Field numbers, types and labels as the proto files have them: push/v1/push.proto, types/v1/types.proto and profile.proto.
MESSAGES = {
    "PushRequest": [(1, "series", "*RawProfileSeries")],
    "RawProfileSeries": [(1, "labels", "*LabelPair"), (2, "samples", "*RawSample")],
    "LabelPair": [(1, "name", "string"), (2, "value", "string")],
    "RawSample": [(1, "raw_profile", "bytes"), (2, "ID", "string")],
    "Profile": [
        (1, "sample_type", "*ValueType"), (2, "sample", "*Sample"), (3, "mapping", "*Mapping"), (4, "location", "*Location"),
        (5, "function", "*Function"), (6, "string_table", "*string"), (7, "drop_frames", "int64"), (8, "keep_frames", "int64"),
        (9, "time_nanos", "int64"), (10, "duration_nanos", "int64"), (11, "period_type", "ValueType"), (12, "period", "int64"),
        (13, "comment", "*int64"), (14, "default_sample_type", "int64"),
    ],
    "ValueType": [(1, "type", "int64"), (2, "unit", "int64")],
    "Sample": [(1, "location_id", "*uint64"), (2, "value", "*int64"), (3, "label", "*Label")],
    "Label": [(1, "key", "int64"), (2, "str", "int64"), (3, "num", "int64"), (4, "num_unit", "int64")],
    "Mapping": [
        (1, "id", "uint64"), (2, "memory_start", "uint64"), (3, "memory_limit", "uint64"), (4, "file_offset", "uint64"),
        (5, "filename", "int64"), (6, "build_id", "int64"), (7, "has_functions", "bool"), (8, "has_filenames", "bool"),
        (9, "has_line_numbers", "bool"), (10, "has_inline_frames", "bool"),
    ],
    "Location": [(1, "id", "uint64"), (2, "mapping_id", "uint64"), (3, "address", "uint64"), (4, "line", "*Line"), (5, "is_folded", "bool")],
    "Line": [(1, "function_id", "uint64"), (2, "line", "int64")],
    "Function": [(1, "id", "uint64"), (2, "name", "int64"), (3, "system_name", "int64"), (4, "filename", "int64"), (5, "start_line", "int64")],
}


def messages():
    kinds = descriptor_pb2.FieldDescriptorProto
    scalars = {"string": kinds.TYPE_STRING, "bytes": kinds.TYPE_BYTES, "int64": kinds.TYPE_INT64, "uint64": kinds.TYPE_UINT64, "bool": kinds.TYPE_BOOL}
    file = descriptor_pb2.FileDescriptorProto(name="push.proto", package="test", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, kind in fields:
            label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            kind = kind.removeprefix("*")
            if kind in scalars:
                message.field.add(name=field, number=number, type=scalars[kind], label=label)
            else:
                message.field.add(name=field, number=number, type=kinds.TYPE_MESSAGE, type_name=f".test.{kind}", label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"test.{name}")) for name in MESSAGES}


MESSAGE = messages()


def strict(message, data):
    """Decodes, and refuses what the message does not know."""
    message.ParseFromString(data)
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    assert known.SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True), "unknown fields"
    return message


def pprof(data):
    profile = strict(MESSAGE["Profile"](), gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    text = profile.string_table
    assert text[0] == ""
    locations = {location.id: location for location in profile.location}
    functions = {function.id: function for function in profile.function}
    mappings = {mapping.id: mapping for mapping in profile.mapping}
    for location in profile.location:
        mapping = mappings.get(location.mapping_id)
        assert location.mapping_id == 0 or mapping.memory_start <= location.address < mapping.memory_limit
    stacks = []
    for sample in profile.sample:
        names = [text[functions[line.function_id].name] for location in sample.location_id for line in locations[location].line]
        labels = {text[label.key]: text[label.str] if label.str else label.num for label in sample.label}
        stacks.append({"names": names, "values": list(sample.value), "labels": labels})
    return {
        "types": [f"{text[kind.type]}/{text[kind.unit]}" for kind in profile.sample_type],
        "totals": [sum(sample.value[column] for sample in profile.sample) for column in range(len(profile.sample_type))],
        "time": profile.time_nanos, "duration": profile.duration_nanos, "period": profile.period,
        "build_ids": [text[mapping.build_id] for mapping in profile.mapping], "samples": stacks,
        "addresses": [location.address for location in profile.location],
    }


def push(data):
    for series in strict(MESSAGE["PushRequest"](), data).series:
        labels = {label.name: label.value for label in series.labels}
        for sample in series.samples:
            yield {"id": sample.ID, "labels": labels, "profile": pprof(sample.raw_profile)}


def otlp(data):
    from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2

    request = strict(profiles_service_pb2.ExportProfilesServiceRequest(), data)
    tables = request.dictionary
    text = tables.string_table
    for table in (tables.mapping_table, tables.location_table, tables.function_table, tables.link_table, tables.attribute_table, tables.stack_table):
        assert table[0] == type(table[0])(), "entry 0 is none"
    assert text[0] == "" and len(set(text)) == len(text)
    for of in request.resource_profiles:
        resource = {entry.key: entry.value.string_value or entry.value.int_value for entry in of.resource.attributes}
        for scope in of.scope_profiles:
            for profile in scope.profiles:
                stacks = [tables.stack_table[sample.stack_index].location_indices for sample in profile.samples]
                functions = [[text[tables.function_table[line.function_index].name_strindex] for index in stack for line in tables.location_table[index].lines] for stack in stacks]
                build_ids = [tables.attribute_table[index].value.string_value for mapping in tables.mapping_table for index in mapping.attribute_indices]
                yield {
                    "id": profile.profile_id.hex(), "resource": resource, "type": f"{text[profile.sample_type.type_strindex]}/{text[profile.sample_type.unit_strindex]}",
                    "total": sum(value for sample in profile.samples for value in sample.values), "names": functions,
                    "time": profile.time_unix_nano, "duration": profile.duration_nano, "build_ids": build_ids,
                }


def parca(data):
    readers = os.environ["READERS"]
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "parca.mjs")
    read = subprocess.run([f"{readers}/node/bin/node", script, readers], input=data, capture_output=True)
    assert read.returncode == 0, read.stderr.decode()
    request = json.loads(read.stdout)
    for series in request["series"]:
        for profile in series["profiles"]:
            yield {"labels": series["labels"], "normalized": request["normalized"], "profile": pprof(base64.b64decode(profile))}


ROUTES = {
    "/push.v1.PusherService/Push": ("application/proto", push),
    "/v1development/profiles": ("application/x-protobuf", otlp),
    "/api/profiles/writeraw": ("application/json", parca),
}
taken = threading.Lock()
# What happens to one request after the other.
mishaps = itertools.cycle(["429", "taken, cut", "ok", "500", "cut in the body", "ok", "hang", "cut at once", "ok", "taken, hang", "503", "ok"])


def note(entry):
    with taken, open(arguments.file, "a") as file:
        file.write(json.dumps(entry) + "\n")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def cut(self):
        # A reset, and not an orderly end.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        mishap = "ok"
        if arguments.flaky:
            with taken:
                mishap = next(mishaps)
        if mishap == "cut at once":
            return self.cut()
        length = int(self.headers["Content-Length"])
        if mishap == "cut in the body":
            self.rfile.read(length // 2)
            return self.cut()
        body = self.rfile.read(length)
        if mishap == "429":
            return self.answer(429, b'{"code":"resource_exhausted","message":"slow down"}', Retry_After="0")
        if mishap in ("500", "503"):
            return self.answer(int(mishap), b"no")
        if mishap == "hang":
            time.sleep(2)
            return self.cut()
        try:
            media_type, decode = ROUTES[self.path]
            assert self.headers["Content-Type"] == media_type, self.headers["Content-Type"]
            entries = list(decode(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body))
        except Exception as problem:  # Whatever it is, the test sees it.
            note({"problem": repr(problem)})
            return self.answer(400, json.dumps({"code": "invalid_argument", "message": repr(problem)}).encode())
        headers = {name.lower(): value for name, value in self.headers.items()}
        for entry in entries:
            note(entry | {"path": self.path, "headers": headers})
        if mishap == "taken, cut":
            return self.cut()
        if mishap == "taken, hang":
            time.sleep(2)
            return self.cut()
        self.answer(200)

    def do_CONNECT(self):
        note({"connect": self.path})
        host, port = self.path.rsplit(":", 1)
        with socket.create_connection((host, int(port))) as other:
            self.send_response(200)
            self.end_headers()
            while True:
                ready, _, _ = select.select([self.connection, other], [], [])
                for one in ready:
                    data = one.recv(65536)
                    if not data:
                        self.close_connection = True
                        return
                    (other if one is self.connection else self.connection).sendall(data)


server = http.server.ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler)
server.daemon_threads = True
if arguments.tls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*arguments.tls)
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
