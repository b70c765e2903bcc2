#!/bin/sh
# Builds a Debian package. The same source and VERSION make the same package.
# usage: packaging/deb.sh FOLDER, with VERSION and GOARCH in the environment if wanted.
set -eu
cd "$(dirname "$0")/.."
out=${1:?"which folder is the package for?"}
GO=${GO:-go}
maintainer=${MAINTAINER:-pktdirector maintainers <maintainers@pktdirector.example>}

# A version begins with a digit, and has no hyphen: that would begin the Debian revision.
version=${VERSION:-$(packaging/version.sh)}
arch=${GOARCH:-$($GO env GOARCH)}
case $arch in 386) debian=i386 ;; ppc64le) debian=ppc64el ;; *) debian=$arch ;; esac
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
export SOURCE_DATE_EPOCH
umask 022

mkdir -p "$out"
root=$(mktemp -d "$out/root.XXXXXX")
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
doc=$root/usr/share/doc/pktdirector
# place MODE FILE TARGET
place() { install -D -m "$1" "$2" "$root/$3"; }

# The program. What runs here writes pages and completion, whatever it is built for.
ldflags="-s -w -X main.version=$version"
CGO_ENABLED=0 GOOS=linux GOARCH=$arch $GO build -trimpath -buildvcs=false -ldflags "$ldflags" -o "$root/usr/bin/pktdirector" ./cmd/pktdirector
own=$root/usr/bin/pktdirector
if [ "$arch" != "$(GOARCH='' $GO env GOHOSTARCH)" ]; then
  own=$root/own
  CGO_ENABLED=0 GOOS='' GOARCH='' $GO build -trimpath -buildvcs=false -ldflags "$ldflags" -o "$own" ./cmd/pktdirector
fi
"$own" man "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*.1
for shell in bash-completion/completions/pktdirector:bash zsh/vendor-completions/_pktdirector:zsh fish/vendor_completions.d/pktdirector.fish:fish; do
  mkdir -p "$root/usr/share/$(dirname "${shell%:*}")"
  "$own" completion "${shell#*:}" > "$root/usr/share/${shell%:*}"
done
rm -f "$root/own"

# A link for scripts that call ipvsadm, out of the way of the package of that name.
mkdir -p "$root/usr/lib/pktdirector/bin"
ln -s ../../../bin/pktdirector "$root/usr/lib/pktdirector/bin/ipvsadm"

place 644 packaging/pktdirector.service usr/lib/systemd/system/pktdirector.service
place 644 packaging/director.yaml etc/pktdirector/director.yaml
place 644 packaging/lintian-overrides usr/share/lintian/overrides/pktdirector
for page in README.md docs/*.md docs/director.yaml docs/director.schema.json docs/grafana/*.json; do
  [ -e "$page" ] && place 644 "$page" "usr/share/doc/pktdirector/${page#docs/}"
done
gzip -9nc CHANGELOG.md > "$doc/changelog.gz"
printf 'pktdirector (%s) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' \
  "$version" "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9nc > "$doc/changelog.Debian.gz"

# The licence, and those of the modules that the program contains.
{
  printf 'pktdirector\n\n'
  cat LICENSE
  $GO list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/pktdirector | sort -u |
    while read -r module number dir; do
      printf '\n\n%s %s\n\n' "$module" "$number"
      found=
      for file in "$dir"/LICENSE* "$dir"/COPYING* "$dir"/NOTICE*; do
        [ -f "$file" ] || continue
        found=yes
        if grep -m1 . "$file" | grep -q 'Apache License'; then # and nothing else before it
          echo 'Apache License, Version 2.0: /usr/share/common-licenses/Apache-2.0'
        else
          cat "$file"
        fi
      done
      [ "$found" ] || { echo "packaging/deb.sh: $module has no licence file in $dir" >&2; exit 1; }
    done
  printf '\n\nGo\n\n'
  cat "$($GO env GOROOT)/LICENSE"
} > "$doc/copyright"

mkdir "$root/DEBIAN"
install -m 755 packaging/postinst packaging/prerm packaging/postrm "$root/DEBIAN/"
echo /etc/pktdirector/director.yaml > "$root/DEBIAN/conffiles"
cat > "$root/DEBIAN/control" <<CONTROL
Package: pktdirector
Version: $version
Architecture: $debian
Maintainer: $maintainer
Installed-Size: $(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f1)
Depends: init-system-helpers (>= 1.52)
Section: net
Priority: optional
Description: Linux Virtual Server in user space
 pktdirector balances TCP, UDP and SCTP over real servers by NAT, direct
 routing or tunnelling, as the kernel's IPVS does, without a kernel module, and
 by FullNAT. It takes ipvsadm's command lines, and is driven by a configuration
 file and an API.
CONTROL
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' md5sum) > "$root/DEBIAN/md5sums"
package=$out/pktdirector_${version}_$debian.deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$package"
