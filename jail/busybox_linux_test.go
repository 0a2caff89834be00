// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fillBusybox makes a root with busybox and the usual names of it.
func fillBusybox(t testing.TB, root string) {
	t.Helper()
	for _, d := range []string{"bin", "etc", "tmp", "proc", "sys", "dev"} {
		if err := os.Mkdir(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	os.Chmod(filepath.Join(root, "tmp"), 0o1777)
	os.Chmod(root, 0o755)
	b, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/busybox"), b, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields("sh sleep cat echo true false ls id pwd ps head yes seq touch kill env dd wc setsid mkdir tty stty mount nproc ulimit date test grep tr tail hostname umask printf") {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("root:x:0:0:root:/root:/bin/sh\nweb:x:1000:1000::/home/web:/bin/sh\n"), 0o644)
	os.WriteFile(filepath.Join(root, "etc/group"), []byte("root:x:0:\nweb:x:1000:\nlogs:x:44:web\nextra:x:45:\n"), 0o644)
}
