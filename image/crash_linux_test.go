// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// The children work in the state directory $STATE.
func init() {
	// load reads an archive from stdin, and kills itself in the middle of a
	// layer if $DIE says so.
	children["load"] = func() error {
		s, err := Open(Config{StateDir: os.Getenv("STATE")})
		if err != nil {
			return err
		}
		_, err = s.Load(context.Background(), os.Stdin, func(status, id string, current, total int64) {
			if os.Getenv("DIE") != "" && current > 0 {
				unix.Kill(os.Getpid(), unix.SIGKILL)
			}
		})
		return err
	}
	children["import"] = func() error {
		s, err := Open(Config{StateDir: os.Getenv("STATE")})
		if err != nil {
			return err
		}
		_, err = s.Import(context.Background(), os.Stdin, "web:1", "", nil)
		return err
	}
	// churn does all that changes the state, for ever.
	children["churn"] = func() error {
		s, err := atState()
		if err != nil {
			return err
		}
		archive, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		ctx := context.Background()
		fmt.Println("ready")
		for i := 0; ; i++ {
			images, err := s.Load(ctx, bytes.NewReader(archive), nil)
			if err != nil {
				return err
			}
			c := fmt.Sprintf("c%d", i)
			if _, err := s.Mount(ctx, images[0].ID, c); err != nil {
				return err
			}
			if err := errors.Join(s.Tag("web:1", "again:1"), s.Unmount(ctx, c), s.Release(ctx, c)); err != nil {
				return err
			}
			for _, name := range []string{"web:1", "again:1"} {
				if _, _, err := s.Remove(ctx, name, false); err != nil {
					return err
				}
			}
		}
	}
}

// atState is a store in $STATE, with clones of the pool in $POOL if there is one.
func atState() (*Store, error) {
	var c Config
	if dir := os.Getenv("POOL"); dir != "" {
		c = (&zfsPool{dir: dir}).config()
	}
	c.StateDir = os.Getenv("STATE")
	return Open(c)
}

func child(t *testing.T, name, state string, env ...string) *exec.Cmd {
	t.Helper()
	needRoot(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVar+"="+name, "STATE="+state)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = testWriter{t}
	return cmd
}

func killed(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.Sys().(interface{ Signaled() bool }).Signaled()
}

func TestCrashInLoad(t *testing.T) {
	state := t.TempDir()
	cmd := child(t, "load", state, "DIE=1")
	cmd.Stdin = bytes.NewReader(twoLayers(t))
	if err := cmd.Run(); !killed(err) {
		t.Fatalf("the child was to be killed: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(state, "images/tmp/layer-*")); len(left) == 0 {
		t.Error("the child was not in the middle of a layer")
	}
	s := open(t, Config{StateDir: state})
	if len(s.List()) != 0 {
		t.Error("there is an image")
	}
	tidy(t, s)
	checkRoot(t, mount(t, s, load(t, s, twoLayers(t)).ID, "c"))
}

func TestCrashInImport(t *testing.T) {
	state := t.TempDir()
	cmd := child(t, "import", state)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// More than pipes and buffers hold: once it is written, the first file is out.
	layer := tarOf(t, file{name: "first", body: "x"}, file{name: "big", body: string(noise(4 << 20))})
	if _, err := in.Write(layer[:3<<20]); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	if err := cmd.Wait(); !killed(err) {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(state, "images/tmp/layer-*/diff/first")); len(left) != 1 {
		t.Errorf("the child was not in the middle of a layer: %v", left)
	}
	s := open(t, Config{StateDir: state})
	tidy(t, s)
	if n := s.LayersSize(); n != 0 {
		t.Errorf("%d bytes of layers are left", n)
	}
}

// TestCrashAnywhere kills at arbitrary moments; whatever the moment was, the
// state is whole and nothing is left over. The seed is printed.
func TestCrashAnywhere(t *testing.T) {
	t.Run("overlay", func(t *testing.T) { crashAnywhere(t, Config{}, "") })
	t.Run("zfs", func(t *testing.T) {
		p := newPool(t)
		crashAnywhere(t, p.config(), p.dir)
		if left := append(p.sets(layersSet), p.sets(containersSet)...); len(left) > 0 {
			t.Errorf("datasets are left: %v", left)
		}
	})
}

func crashAnywhere(t *testing.T, c Config, pool string) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	archive := saved(t, "web:1", v1.Config{}, baseLayer(t), topLayer(t))
	state := t.TempDir()
	c.StateDir, c.Logger = state, slog.New(slog.NewTextHandler(testWriter{t}, nil))
	open(t, c).Close()
	for round := range 12 {
		cmd := child(t, "churn", state, "POOL="+pool)
		cmd.Stdin = bytes.NewReader(archive)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		io.ReadFull(out, make([]byte, len("ready\n")))
		time.Sleep(time.Duration(random.Int64N(int64(150 * time.Millisecond)))) // any moment will do
		cmd.Process.Kill()
		if err := cmd.Wait(); !killed(err) {
			t.Fatal(err)
		}
		s, err := Open(c)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		tidy(t, s)
		for _, img := range s.List() {
			checkRoot(t, mount(t, s, img.ID, "check"))
		}
		if err := s.Sweep(t.Context(), nil); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		if left, err := os.ReadDir(s.containers); err != nil || len(left) > 0 {
			t.Errorf("round %d: containers left: %v %v", round, left, err)
		}
		if left, err := mountsBelow(state); err != nil || len(left) > 0 {
			t.Errorf("round %d: mounts left: %v %v", round, left, err)
		}
		tidy(t, s)
		for _, img := range s.List() {
			if _, _, err := s.Remove(t.Context(), img.ID, true); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
		}
		s.Close()
	}
}

// TestProbeLeftMounted is a crash in the middle of Open.
func TestProbeLeftMounted(t *testing.T) {
	s := open(t, Config{})
	s.Close()
	point := s.path("tmp", "probe-1")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", point, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	tidy(t, open(t, Config{StateDir: filepath.Dir(s.dir)}))
}
