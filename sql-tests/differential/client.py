"""PostgreSQL's simple protocol, as far as a comparison of answers needs it; nothing has to be installed."""

import socket
import struct
from collections import namedtuple

# One column as it was announced: name, oid of the type, type modifier.
Column = namedtuple("Column", "name type modifier")
# What a server answered to one message: columns and rows of the last result, or the SQLSTATE of an error.
Answer = namedtuple("Answer", "columns rows tag code message position")


class Gone(Exception):
    """The server closed the connection, or did not answer in time."""


class Client:
    def __init__(self, port, user="millrace", database="millrace", seconds=30):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        parameters = f"user\0{user}\0database\0{database}\0\0".encode()
        self.socket.sendall(struct.pack("!ii", len(parameters) + 8, 196608) + parameters)
        self._answer()

    def close(self):
        self.socket.close()

    def ask(self, statement):
        """The answer to a statement, in text."""
        self.send(statement)
        return self._answer()

    def send(self, statement):
        body = statement.encode() + b"\0"
        try:
            self.socket.sendall(b"Q" + struct.pack("!i", len(body) + 4) + body)
        except OSError as error:
            raise Gone(str(error)) from error

    def _take(self, count):
        blocks, have = [self.buffer], len(self.buffer)
        while have < count:
            try:
                block = self.socket.recv(1 << 20)
            except OSError as error:
                raise Gone(str(error)) from error
            if not block:
                raise Gone("the connection was closed")
            blocks.append(block)
            have += len(block)
        whole = b"".join(blocks)
        self.buffer = whole[count:]
        return whole[:count]

    def _answer(self):
        columns, rows, tag = None, [], None
        code = message = position = None
        while True:
            kind, length = struct.unpack("!ci", self._take(5))
            body = self._take(length - 4)
            if kind == b"T":
                columns, rows = _columns(body), []
            elif kind == b"D":
                rows.append(_row(body))
            elif kind == b"C":
                tag = body[:-1].decode()
            elif kind == b"E":
                fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
                code, message, position = fields.get(b"C"), fields.get(b"M"), fields.get(b"P")
            elif kind == b"G":
                self.socket.sendall(b"f" + struct.pack("!i", 5) + b"\0")
            elif kind == b"Z":
                return Answer(columns, rows, tag, code, message, position)


def _columns(body):
    count, at, columns = struct.unpack("!h", body[:2])[0], 2, []
    for _ in range(count):
        end = body.index(b"\0", at)
        _, _, oid, _, modifier, _ = struct.unpack("!ihihih", body[end + 1:end + 19])
        columns.append(Column(body[at:end].decode(), oid & 0xFFFFFFFF, modifier))
        at = end + 19
    return columns


def _row(body):
    count, at, row = struct.unpack("!h", body[:2])[0], 2, []
    for _ in range(count):
        length = struct.unpack("!i", body[at:at + 4])[0]
        at += 4
        if length < 0:
            row.append(None)
        else:
            row.append(body[at:at + length].decode(errors="replace"))
            at += length
    return tuple(row)
