#!/bin/sh
# Installs both wheels of a folder as a user does, where this is called, and starts what they bring:
# with neither an index, a compiler nor a checkout at hand. `sh try.sh FOLDER`.
set -eu
python3 -m venv fresh
PATH=$PWD/fresh/bin:/usr/bin:/bin
fresh/bin/pip install --quiet --disable-pip-version-check drystone drystone-sim \
    --no-index --only-binary :all: --find-links "$1"
fresh/bin/drystone --version
fresh/bin/drystone-sim run true
fresh/bin/python -c "from drystone import _library; _library.library()"
