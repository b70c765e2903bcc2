#!/bin/sh
# Prints a version from git's tags, as Debian takes it: 1.2.3 for the tag v1.2.3,
# 1.2.3+4.g0123abc four commits later, 0+git400.0123abc without a tag.
set -eu
cd "$(dirname "$0")/.."
if described=$(git describe --tags --match 'v[0-9]*' 2>/dev/null); then
  echo "$described" | sed -E 's/^v//; s/-([0-9]+)-(g[0-9a-f]+)$/+\1.\2/; s/-/~/g'
elif commit=$(git rev-parse --short=7 HEAD 2>/dev/null); then
  echo "0+git$(git rev-list --count HEAD).$commit"
else
  echo 0+unknown
fi
