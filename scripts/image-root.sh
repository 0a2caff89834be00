# SPDX-License-Identifier: BSD-2-Clause
# Sourced by the scripts that make images out of Debian's packages. They need
# apt and Go, but neither Docker nor root (except to fetch apt's package lists
# on a machine that never did).

# packages DIR NAME...: downloads the packages into DIR.
packages() {
	local dir=$1
	shift
	if ! apt-cache show "$@" >/dev/null 2>&1; then
		apt-get -qq update >&2
	fi
	# As root apt would want to download as another user, who cannot write here.
	(cd "$dir" && apt-get -qq -o APT::Sandbox::User=root download "$@" >&2)
}

# libraries NAME: the libraries the package needs, and those that these need.
# apt is asked once, for all that could be needed: it takes a second each time.
libraries() {
	apt-cache depends --important --recurse "$1" | awk -v start="$1" '
		/^[^ ]/ { package = $1 }
		$1 == "Depends:" && $2 ~ /^(lib|zlib)/ { needs[package] = needs[package] " " $2 }
		function visit(p,   list, n, i) {
			n = split(needs[p], list, " ")
			for (i = 1; i <= n; i++)
				if (!(list[i] in seen)) {
					seen[list[i]]
					print list[i]
					visit(list[i])
				}
		}
		END { visit(start) }'
}

# unpack ROOT DEB...: unpacks packages into a root whose /bin, /lib ... are
# links into /usr, as on any Debian of today.
unpack() {
	local root=$1 deb
	shift
	for deb in "$@"; do
		dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$root" --keep-directory-symlink --no-same-owner -p
	done
}

# base ROOT: directories, users and names that programs look for.
base() {
	local root=$1 dir
	mkdir -p "$root"/{usr/{bin,sbin,lib,lib64},etc,dev,proc,sys,run,root,home,srv/www,tmp,var/{lib,log,cache,tmp}}
	for dir in bin sbin lib lib64; do
		ln -sfn usr/$dir "$root/$dir"
	done
	ln -sfn /run "$root/var/run"
	chmod 1777 "$root/tmp" "$root/var/tmp"
	chmod 700 "$root/root"
	cat >"$root/etc/passwd" <<-'END'
		root:x:0:0:root:/root:/bin/sh
		www-data:x:33:33:www-data:/srv/www:/usr/sbin/nologin
		web:x:1000:1000:web:/tmp:/bin/sh
		nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
	END
	cat >"$root/etc/group" <<-'END'
		root:x:0:
		www-data:x:33:
		web:x:1000:
		nogroup:x:65534:
	END
	echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
}

# add_busybox ROOT WORK: a static busybox with a link for each of its commands that
# the root does not have already. The machine's own is taken if it is static.
add_busybox() {
	local root=$1 work=$2 own applet
	own=$(type -P busybox || true)
	if [ -n "$own" ] && ! grep -q 'ld-linux\|ld-musl' "$own"; then
		install -m 755 "$own" "$root/usr/bin/busybox"
	else
		mkdir -p "$work/busybox"
		packages "$work/busybox" busybox-static
		unpack "$root" "$work"/busybox/*.deb
	fi
	for applet in $("$root/usr/bin/busybox" --list); do
		[ -e "$root/usr/bin/$applet" ] || [ -e "$root/usr/sbin/$applet" ] || ln -s busybox "$root/usr/bin/$applet"
	done
}

# trim ROOT: what nobody reads in a container.
trim() {
	rm -rf "$1"/usr/share/{doc,man,info,locale,lintian,bug,i18n} "$1"/usr/lib/*/{gconv,audit} "$1"/usr/lib/systemd
}
