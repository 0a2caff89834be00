// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/moby/sys/user"
)

// maxUserFile bounds what is read of an image's /etc/passwd and /etc/group.
const maxUserFile = 4 << 20

// identity is who a process in a container runs as.
type identity struct {
	uid, gid uint32
	groups   []uint32
	home     string
}

// lookUser resolves a user and additional groups, given as in an image's
// config, with the container's own /etc/passwd and /etc/group. Numbers need
// no entry there.
func lookUser(rootfs, spec string, groups []string) (identity, error) {
	passwd, err := openUserFile(rootfs, "etc/passwd")
	if err != nil {
		return identity{}, err
	}
	defer passwd.Close()
	group, err := openUserFile(rootfs, "etc/group")
	if err != nil {
		return identity{}, err
	}
	defer group.Close()
	u, err := user.GetExecUser(spec, &user.ExecUser{Home: "/"}, passwd, group)
	if err != nil {
		return identity{}, invalid("user %q: %v", spec, err)
	}
	who := identity{uid: uint32(u.Uid), gid: uint32(u.Gid), home: u.Home}
	gids := u.Sgids
	if len(groups) > 0 {
		again, err := openUserFile(rootfs, "etc/group")
		if err != nil {
			return identity{}, err
		}
		defer again.Close()
		more, err := user.GetAdditionalGroups(groups, again)
		if err != nil {
			return identity{}, invalid("groups %s: %v", strings.Join(groups, ","), err)
		}
		gids = append(gids, more...)
	}
	for _, g := range gids {
		who.groups = append(who.groups, uint32(g))
	}
	return who, nil
}

// openUserFile opens a file of a container's root without ever leaving it. One
// that is not there reads as empty.
func openUserFile(rootfs, name string) (io.ReadCloser, error) {
	f, err := openInRoot(rootfs, name)
	if errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(strings.NewReader("")), nil
	}
	if err != nil {
		return nil, fmt.Errorf("open %s of the container's root: %w", name, err)
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, invalid("/%s of the container's root is not a file", name)
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, maxUserFile), f}, nil
}

// homeAnnotation marks a bundle whose HOME is the user's home, not the spec's
// word: an exec as another user then gets that one's.
const homeAnnotation = "satl.home"

// annotations adds to a spec's own what the bundle is to remember.
func annotations(spec Spec, more map[string]string) map[string]string {
	out := maps.Clone(spec.Annotations)
	if out == nil {
		out = make(map[string]string)
	}
	maps.Copy(out, more)
	if !slices.ContainsFunc(spec.Env, func(e string) bool { return strings.HasPrefix(e, "HOME=") }) {
		out[homeAnnotation] = "derived"
	}
	return out
}

// environment is the process's: what Docker puts there of its own accord
// where the spec does not say otherwise (daemon/container.go of docker/docker,
// and HOME as runc does), then the spec's.
func environment(env []string, hostname, home string, tty bool) []string {
	out := make([]string, 0, len(env)+4)
	add := func(name, value string) {
		for _, e := range env {
			if strings.HasPrefix(e, name+"=") {
				return
			}
		}
		out = append(out, name+"="+value)
	}
	add("PATH", defaultPath)
	if hostname != "" {
		add("HOSTNAME", hostname)
	}
	if tty {
		add("TERM", "xterm")
	}
	out = append(out, env...)
	if home != "" {
		add("HOME", home)
	}
	return out
}

// defaultPath is Docker's.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
