"""A collector of OpenTelemetry for the tests: prints its port, and then each span as an object a line, until it is ended."""

import http.server
import json

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        request = ExportTraceServiceRequest()
        request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        unknown = [field for part in walk(request) for field in part.unknown]
        for resource in request.resource_spans:
            service = texts(resource.resource.attributes)
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                print(json.dumps({
                    "path": self.path,
                    "type": self.headers["Content-Type"],
                    "service": service["service.name"],
                    "unknown": unknown,
                    "trace": span.trace_id.hex(),
                    "id": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "name": span.name,
                    "kind": span.kind,
                    "start": span.start_time_unix_nano,
                    "end": span.end_time_unix_nano,
                    "error": span.status.code == 2,
                    "attributes": texts(span.attributes),
                }), flush=True)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


class Part:
    def __init__(self, message):
        from google.protobuf.unknown_fields import UnknownFieldSet

        self.unknown = [f"{message.DESCRIPTOR.name}.{field.field_number}" for field in UnknownFieldSet(message)]


def walk(message):
    """The message and all that are in it."""
    yield Part(message)
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            # One, or several.
            for part in [value] if hasattr(value, "ListFields") else value:
                yield from walk(part)


def texts(attributes):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


server = http.server.HTTPServer(("127.0.0.1", 0), Collector)
print(server.server_port, flush=True)
server.serve_forever()
