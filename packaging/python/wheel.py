"""Makes the wheel of a binary: wheel.py BINARY VERSION TAG OUT. The same bytes for the same binary and SOURCE_DATE_EPOCH."""

import base64
import hashlib
import os
import sys
import time
import zipfile

binary, version, tag, out = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
root = os.path.dirname(os.path.dirname(here))
when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))[:6]


def read(path):
    with open(path, "rb") as file:
        return file.read()


info = f"millrace-{version}.dist-info"
metadata = f"""Metadata-Version: 2.1
Name: millrace
Version: {version}
Summary: A declarative SQL streaming database in one binary
License: Apache-2.0
Requires-Python: >=3.10
Description-Content-Type: text/markdown

"""
files = {
    "millrace/__init__.py": read(os.path.join(here, "millrace", "__init__.py")),
    f"millrace-{version}.data/scripts/millrace": read(binary),
    f"{info}/METADATA": metadata.encode() + read(os.path.join(root, "docs", "python.md")),
    f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: scripts/release\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n".encode(),
    f"{info}/LICENSE": read(os.path.join(root, "LICENSE")),
    f"{info}/NOTICE": read(os.path.join(root, "NOTICE")),
}
record = ""
for name, content in files.items():
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    record += f"{name},sha256={digest},{len(content)}\n"
files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()

path = os.path.join(out, f"millrace-{version}-py3-none-{tag}.whl")
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
    for name, content in files.items():
        entry = zipfile.ZipInfo(name, when)
        entry.external_attr = (0o100755 if name.endswith("/scripts/millrace") else 0o100644) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        wheel.writestr(entry, content)
print(path)
