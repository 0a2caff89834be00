// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"errors"
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

// scratch is where images are made; it goes with the tests.
var scratch string

// skipReason says why this machine cannot run the ring, "" where it can.
var skipReason string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

// testMain builds the programs, once, and runs the tests on a machine of their
// own.
func testMain(m *testing.M) int {
	if skipReason = missing(); skipReason != "" {
		fmt.Fprintf(os.Stderr, "\n*** e2e: SKIPPED: %s ***\n\n", skipReason)
		return m.Run()
	}
	if os.Getenv(given) == "" {
		dir, err := os.MkdirTemp("", "satl-e2e-bin-")
		if err == nil {
			defer os.RemoveAll(dir)
			err = errors.Join(build(dir), os.Setenv(given, dir))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	bin = os.Getenv(given)
	// A test here waits for the daemon most of its time, so that more of them
	// run at a time than there are processors, unless -parallel says how many.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := flag.Set("test.parallel", "6"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return onMachine(m.Run)
}

// given names the directory of programs that are built already.
const given = "SATL_E2E_BIN"

const (
	// uplink is the address of the tests' machine beside loopback.
	uplink = "192.0.2.2"
	// elsewhere is the one name that its resolver knows, elsewhereAddr what it
	// says of it.
	elsewhere     = "www.elsewhere.test"
	elsewhereAddr = "192.0.2.80"
)

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
