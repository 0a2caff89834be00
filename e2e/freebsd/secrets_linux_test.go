// SPDX-License-Identifier: BSD-2-Clause

package freebsd

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/swarm"
)

// A jail sees its secret and config through mounts of a tmpfs of its own, which
// outlives a daemon and goes with the jail.
func TestSecrets(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	r.ask("POST", "/secrets/create", swarm.SecretSpec{Annotations: swarm.Annotations{Name: "password"}, Data: []byte("hunter2")}, nil)
	r.ask("POST", "/configs/create", swarm.ConfigSpec{Annotations: swarm.Annotations{Name: "page"}, Data: []byte("#!/bin/sh\necho hello\n")}, nil)
	r.docker("service", "create", "--detach", "--no-resolve-image", "--name", "web", "--stop-grace-period", "1s",
		"--secret", "source=password,target=db/password,uid=7,gid=8,mode=0440", "--config", "source=page,target=/etc/page,mode=0555", "app:1", "/app")
	task := r.awaitRunning("web", 1)[0]
	inside := func() {
		t.Helper()
		out := r.docker("exec", task.Status.ContainerStatus.ContainerID, "sh", "-c", "cat /run/secrets/db/password; /etc/page; ls -ln /run/secrets/db/password")
		if !strings.HasPrefix(out, "hunter2hello\n-r--r-----") || !strings.Contains(out, " 7 ") {
			t.Errorf("inside: %q", out)
		}
	}
	inside()
	memory := filepath.Join(r.state, "jail/memory", r.jailOf(task))
	kinds := make(map[string]string)
	for _, m := range r.World().Mounts {
		if m.On == memory || strings.HasPrefix(m.From, memory+"/") {
			kinds[m.Type] += m.Options + ";"
		}
	}
	if kinds["tmpfs"] != "rw,nosuid;" || kinds["nullfs"] != "ro,nosuid;ro,nosuid;" {
		t.Errorf("mounts: %v", kinds)
	}
	r.end(syscall.SIGKILL)
	r.start()
	r.awaitRunning("web", 1)
	inside()
	r.docker("service", "rm", "web")
	r.until("the end of the files", func() bool {
		_, err := os.Stat(memory)
		return os.IsNotExist(err)
	})
	r.docker("secret", "rm", "password")
}
