#!/bin/sh
# Installs millrace from a place where `scripts/release` has put its files:
#   curl -fsSL BASE/install.sh | sh -s -- --base BASE [--version VERSION] [--prefix DIR]
# The archive is checked against BASE/SHA256SUMS before anything is unpacked. Without root, give a prefix that is yours. A server that
# runs goes on with the binary that it was started with, until it is started again.
set -eu

usage() { echo "usage: install.sh --base URL [--version VERSION] [--prefix DIR]" >&2; }
fail() { echo "install.sh: $1" >&2; exit 1; }
fetch() {
    if command -v curl > /dev/null; then curl -fsSL "$1" -o "$2"; else wget -q "$1" -O "$2"; fi
}

# A function, called in the last line: half of a script does nothing.
main() {
    base="" version="" prefix=/usr/local
    while [ $# -gt 0 ]; do
        case $1 in
            -h | --help) usage; exit 0 ;;
            --base | --version | --prefix) [ $# -ge 2 ] && [ -n "$2" ] || { usage; exit 2; } ;;
            *) usage; exit 2 ;;
        esac
        case $1 in
            --base) base=${2%/} ;;
            --version) version=$2 ;;
            --prefix) prefix=${2%/} ;;
        esac
        shift 2
    done
    [ -n "$base" ] || { usage; exit 2; }
    [ "$(uname -s)" = Linux ] || fail "there are archives for Linux only; build from source elsewhere"
    machine=$(uname -m)
    command -v curl > /dev/null || command -v wget > /dev/null || fail "curl or wget is needed"
    command -v sha256sum > /dev/null || fail "sha256sum is needed"

    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' INT TERM HUP
    fetch "$base/SHA256SUMS" "$work/SHA256SUMS" || fail "cannot get $base/SHA256SUMS"
    # The lines of archives for this machine, a version each.
    archives=$(sed -n "s/^[0-9a-f]\{64\}  millrace-\(.*\)-$machine-linux\.tar\.gz\$/\1/p" "$work/SHA256SUMS" | sort -V)
    [ -n "$archives" ] || fail "$base has no archive for $machine"
    if [ -z "$version" ]; then
        version=$(echo "$archives" | tail -n 1)
    elif ! echo "$archives" | grep -qxF "$version"; then
        fail "$base has no version $version for $machine; it has: $(echo "$archives" | tr '\n' ' ')"
    fi
    name="millrace-$version-$machine-linux"
    fetch "$base/$name.tar.gz" "$work/$name.tar.gz" || fail "cannot get $base/$name.tar.gz"
    (cd "$work" && grep -F "  $name.tar.gz" SHA256SUMS | sha256sum -c - > /dev/null 2>&1) \
        || fail "$name.tar.gz is not what SHA256SUMS says: nothing was installed"
    tar -xzf "$work/$name.tar.gz" -C "$work"
    said=$("$work/$name/bin/millrace" --version 2>&1) \
        || fail "the binary does not run on this machine ($said): nothing was installed"

    mkdir -p "$prefix/bin" "$prefix/share" 2> /dev/null && [ -w "$prefix/bin" ] && [ -w "$prefix/share" ] \
        || fail "cannot write to $prefix: use sudo, or --prefix \$HOME/.local"
    cp -R "$work/$name/share/." "$prefix/share/"
    # Under another name first: a binary that runs cannot be written over, but replaced.
    cp "$work/$name/bin/millrace" "$prefix/bin/.millrace.new"
    chmod 755 "$prefix/bin/.millrace.new"
    mv -f "$prefix/bin/.millrace.new" "$prefix/bin/millrace"
    echo "$said is installed in $prefix/bin; next: millrace demo"
    case ":$PATH:" in
        *":$prefix/bin:"*) ;;
        *) echo "$prefix/bin is not in PATH: export PATH=\"$prefix/bin:\$PATH\"" ;;
    esac
}

main "$@"
