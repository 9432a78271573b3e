#!/bin/sh
# Installs millrace from a place where `scripts/release` has put its files:
#   curl -fsSL BASE/install.sh | sh -s -- --base BASE [--version VERSION] [--prefix DIR]
# The archive is checked against BASE/SHA256SUMS before anything is unpacked. Without root, give a prefix that is yours.
set -eu

base="" version="" prefix=/usr/local
usage() { echo "usage: install.sh --base URL [--version VERSION] [--prefix DIR]" >&2; exit 2; }
fail() { echo "install.sh: $1" >&2; exit 1; }
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
        --base) base=${2%/} ;;
        --version) version=$2 ;;
        --prefix) prefix=$2 ;;
        *) usage ;;
    esac
    shift 2
done
[ -n "$base" ] || usage
[ "$(uname -s)" = Linux ] || fail "there are archives for Linux only; build from source elsewhere"
machine=$(uname -m)

if command -v curl >/dev/null; then fetch() { curl -fsSL "$1" -o "$2"; }
elif command -v wget >/dev/null; then fetch() { wget -q "$1" -O "$2"; }
else fail "curl or wget is needed"; fi
command -v sha256sum >/dev/null || fail "sha256sum is needed"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fetch "$base/SHA256SUMS" "$work/SHA256SUMS" || fail "cannot get $base/SHA256SUMS"
if [ -n "$version" ]; then name="millrace-$version-$machine-linux.tar.gz"
else name=$(sed -n "s/^[0-9a-f]*  \(millrace-.*-$machine-linux\.tar\.gz\)\$/\1/p" "$work/SHA256SUMS" | sort -V | tail -n 1); fi
[ -n "$name" ] || fail "$base has no archive for $machine"
line=$(grep "^[0-9a-f]\{64\}  $name\$" "$work/SHA256SUMS") || fail "$base/SHA256SUMS does not list $name"
fetch "$base/$name" "$work/$name" || fail "cannot get $base/$name"
(cd "$work" && echo "$line" | sha256sum -c - >/dev/null) || fail "$name is not what SHA256SUMS says: nothing was installed"

tar -xzf "$work/$name" -C "$work"
root="$work/${name%.tar.gz}"
"$root/bin/millrace" --version >/dev/null || fail "the binary does not run on this machine"
mkdir -p "$prefix" || fail "cannot write to $prefix: use sudo, or --prefix \$HOME/.local"
for directory in bin share; do
    mkdir -p "$prefix/$directory"
    cp -R "$root/$directory/." "$prefix/$directory/"
done
echo "$("$prefix/bin/millrace" --version) is installed in $prefix/bin; next: millrace demo"
