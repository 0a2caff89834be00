// SPDX-License-Identifier: BSD-2-Clause

//go:build freebsdhost

package jail

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// builtRoot is what fillRoot links from; made once.
var builtRoot string

// rootPrograms are the host's own that containers of the tests have.
const rootPrograms = "sh sleep cat echo true false ls id pwd ps head tail tr yes seq touch kill env dd wc mkdir tty stty date test grep " +
	"hostname mount jot nc ifconfig sysctl umask printf"

// fillRoot makes a root with programs of this host, their libraries, and the
// usual names of them.
func fillRoot(t testing.TB, root string) {
	t.Helper()
	if builtRoot == "" {
		buildRoot(t)
	}
	err := filepath.WalkDir(builtRoot, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(root, strings.TrimPrefix(path, builtRoot))
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		return os.Link(path, to)
	})
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(filepath.Join(root, "tmp"), 0o1777)
}

func buildRoot(t testing.TB) {
	t.Helper()
	dir, err := os.MkdirTemp("", "satl-root-")
	if err != nil {
		t.Fatal(err)
	}
	builtRoot = dir
	for _, d := range []string{"bin", "etc", "tmp", "dev", "lib", "libexec", "proc"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	libs := map[string]bool{"/libexec/ld-elf.so.1": true}
	for _, name := range strings.Fields(rootPrograms) {
		path, err := exec.LookPath(name)
		if err != nil {
			continue // built into the shell
		}
		copyProgram(t, path, filepath.Join(dir, "bin", name))
		out, err := exec.Command("ldd", "-f", `%p\n`, path).Output()
		if err != nil {
			continue // a script, or static
		}
		for lib := range strings.FieldsSeq(string(out)) {
			if strings.HasPrefix(lib, "/") {
				libs[lib] = true
			}
		}
	}
	for lib := range libs {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, lib)), 0o755); err != nil {
			t.Fatal(err)
		}
		copyProgram(t, lib, filepath.Join(dir, lib))
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copyProgram(t, self, filepath.Join(dir, "bin/setsid"))
	for name, text := range map[string]string{
		"etc/passwd": "root:*:0:0:root:/root:/bin/sh\nweb:*:1000:1000::/home/web:/bin/sh\n",
		"etc/group":  "wheel:*:0:\nweb:*:1000:\nlogs:*:44:web\nextra:*:45:\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func copyProgram(t testing.TB, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

func cleanRoot() {
	if builtRoot != "" {
		os.RemoveAll(builtRoot)
	}
}

// needJails skips where there is no real thing.
func needJails(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: jails need root")
	}
	for _, tool := range []string{"ocijail", "jls", "jail", "ldd"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIPPED: %s is not installed", tool)
		}
	}
}

// foreignJail makes a jail that is somebody else's.
func (n *node) foreignJail(name string) { n.tool("jail", "-c", "name="+name, "path=/", "persist") }

func (n *node) removeForeign(name string) { n.tool("jail", "-R", name) }

// strayJail makes one of a container, as ocijail's create leaves it when it dies.
func (n *node) strayJail(name, root string) {
	n.tool("jail", "-c", "name="+name, "path="+root, "persist", "vnet")
}
