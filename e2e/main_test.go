// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// bin is where the programs under test were built.
var bin string

// scratch is where they and the images lie; it goes with the tests.
var scratch string

// skipReason says why this machine cannot run the ring, "" where it can.
var skipReason string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if skipReason = missing(); skipReason != "" {
		fmt.Fprintf(os.Stderr, "\n*** e2e: SKIPPED: %s ***\n\n", skipReason)
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "satl-e2e-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin, scratch = dir, dir
	if given := os.Getenv("SATL_E2E_BIN"); given != "" {
		bin = given
	} else if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// A test here waits for the daemon most of its time, so that more of them
	// run at a time than there are processors, unless -parallel says how many.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := flag.Set("test.parallel", "6"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

func build(dir string) error {
	for _, p := range []string{"satld", "satl", "satl-init"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, p), "./cmd/"+p)
		cmd.Dir, cmd.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %v\n%s", p, err, out)
		}
	}
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "app"), "./testapp")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build testapp: %v\n%s", err, out)
	}
	return nil
}

func missing() string {
	if runtime.GOOS != "linux" {
		return "the ring runs on Linux"
	}
	if os.Geteuid() != 0 {
		return "must be root"
	}
	var lack []string
	for _, tool := range []string{"runc", "nft", "docker", "ip", "busybox"} {
		if _, err := exec.LookPath(tool); err != nil {
			lack = append(lack, tool)
		}
	}
	if len(lack) > 0 {
		return "not installed: " + strings.Join(lack, ", ") + " (scripts/debian-setup installs them)"
	}
	return ""
}

func need(t *testing.T) {
	t.Helper()
	if skipReason != "" {
		t.Skip(skipReason)
	}
}
