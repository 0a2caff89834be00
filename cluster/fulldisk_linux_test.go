// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/swarmkit/v2/api"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// smallDisk is a file system of a few MiB, and fill uses up what is free of it.
func smallDisk(t *testing.T) (dir string, fill func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir, func() {
		f, err := os.OpenFile(filepath.Join(dir, "ballast"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for size := 64 << 10; size > 0; {
			if _, err := f.Write(make([]byte, size)); err != nil {
				size /= 2
			}
		}
	}
}

// A manager whose disk is full hands on to the leader what it cannot write
// itself, and reads there what became of it, though it led before and knows of
// no leader since.
func TestFullDiskHandsOn(t *testing.T) {
	for place, name := range []string{"led", "followed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, fill := smallDisk(t)
			var nodes []*running
			for i := range 3 {
				dir := stateDir(t)
				if i == place {
					dir = filepath.Join(disk, "state")
				}
				nodes = append(nodes, startNode(t, dir, newFake(), nil))
				if i > 0 {
					join(t, nodes[i], nodes[0], api.NodeRoleManager)
				}
			}
			full, other := nodes[place], nodes[2]
			for i := 0; full.m().raft.Trouble() == nil; i++ {
				if i == 1000 {
					t.Fatal("the disk never became full")
				}
				fill() // again: files that were compacted left room
				spec := replicas(fmt.Sprint("ballast", i), 0)
				spec.Annotations.Labels = map[string]string{"pad": strings.Repeat("x", 64<<10)}
				if _, err := other.Control().CreateService(t.Context(), &api.CreateServiceRequest{Spec: spec}); err != nil && status.Code(err) != codes.Unavailable {
					t.Fatal(err)
				}
			}
			var id string
			attempt := 0
			eventually(t, 30*time.Second, "a write through the manager", func() string {
				attempt++ // of one whose outcome is unknown the name may be taken
				r, err := full.Control().CreateService(t.Context(), &api.CreateServiceRequest{Spec: replicas(fmt.Sprint("web", attempt), 0)})
				if err != nil {
					return err.Error()
				}
				id = r.Service.ID
				return ""
			})
			eventually(t, 30*time.Second, "it is read there", func() string {
				_, err := full.Control().GetService(t.Context(), &api.GetServiceRequest{ServiceID: id})
				if err != nil {
					return err.Error()
				}
				return ""
			})
			if service(full, id) != nil || full.m().raft.Trouble() == nil {
				t.Error("there was room: this test shows nothing")
			}
		})
	}
}
