"""Takes one file, torch/cuda/_memory_viz.py, out of the PyTorch wheel, without the other 500 MB.

Usage: fetch_memory_viz.py VERSION OUT. A wheel is a zip file, and pip tells where it lies: only the parts that hold the
directory and the one file are requested.
"""

import io
import json
import subprocess
import sys
import urllib.request
import zipfile

MEMBER = "torch/cuda/_memory_viz.py"


def wheel_url(version):
    """Where pip would take the wheel from."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps", "--ignore-installed"]
    pip += ["--only-binary=:all:", "--report=-", f"torch=={version}"]
    report = json.loads(subprocess.run(pip, check=True, capture_output=True, text=True).stdout)
    return report["install"][0]["download_info"]["url"]


class RemoteFile(io.RawIOBase):
    """A file on a server that answers requests for byte ranges."""

    def __init__(self, url):
        self.url = url
        self.position = 0
        with self._request(0, 0) as answer:
            if answer.status != 206:
                raise OSError("the server does not answer requests for ranges")
            self.size = int(answer.headers["Content-Range"].rpartition("/")[2])

    def _request(self, first, last):
        headers = {"Range": f"bytes={first}-{last}"}
        return urllib.request.urlopen(urllib.request.Request(self.url, headers=headers), timeout=60)

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self.position

    def seek(self, offset, whence=io.SEEK_SET):
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence]
        self.position = start + offset
        return self.position

    def readinto(self, buffer):
        count = min(len(buffer), self.size - self.position)
        if count <= 0:
            return 0
        with self._request(self.position, self.position + count - 1) as answer:
            data = answer.read()
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)


def main():
    version, out = sys.argv[1:]
    with zipfile.ZipFile(io.BufferedReader(RemoteFile(wheel_url(version)), 1 << 18)) as wheel:
        source = wheel.read(MEMBER)
    with open(out, "wb") as file:
        file.write(source)


if __name__ == "__main__":
    main()
