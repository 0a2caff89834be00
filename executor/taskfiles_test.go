// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/swarmkit/v2/api"

	"satld/jail"
)

// filesTask is a task with a secret and a config.
func filesTask() *api.Task {
	t := webTask(nil)
	c := t.Spec.GetContainer()
	c.Env = []string{"GREETING=hello"}
	c.Secrets = []*api.SecretReference{{SecretID: "s1", SecretName: "password", Target: &api.SecretReference_File{
		File: &api.FileTarget{Name: "db/password", UID: "1000", GID: "44", Mode: 0o440},
	}}}
	c.Configs = []*api.ConfigReference{{ConfigID: "c1", ConfigName: "conf", Target: &api.ConfigReference_File{
		File: &api.FileTarget{Name: "conf", Mode: 0o4444},
	}}}
	return t
}

func secret(id, data string) api.Secret {
	return api.Secret{ID: id, Spec: api.SecretSpec{Data: []byte(data)}}
}

func config(id, data string) api.Config {
	return api.Config{ID: id, Spec: api.ConfigSpec{Data: []byte(data)}}
}

// assign is what SwarmKit's agent does with everything that a manager tells.
func (b *bench) assign(secrets []api.Secret, configs []api.Config) {
	b.node.Secrets().Reset()
	b.node.Secrets().Add(secrets...)
	b.node.Configs().Reset()
	b.node.Configs().Add(configs...)
}

// A start waits for what has not come yet, however long, and what comes is in
// no record.
func TestStartWaitsForSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		c := prepared(t, b, filesTask())
		started := make(chan error, 1)
		go func() { started <- c.Start(t.Context()) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		select {
		case err := <-started:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		templated := config("c1", `{{ env "GREETING" }} {{ secret "db/password" }}`)
		templated.Spec.Templating = &api.Driver{Name: "golang"}
		// Another task's secret is none of its own.
		b.assign([]api.Secret{secret("s2", "other"), secret("s1", "hunter2")}, []api.Config{templated})
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		want := []jail.File{
			{Target: "/run/secrets/db/password", Data: []byte("hunter2"), Mode: 0o440, UID: 1000, GID: 44},
			{Target: "/conf", Data: []byte("hello hunter2"), Mode: 0o444},
		}
		if !reflect.DeepEqual(b.rt.files, want) {
			t.Errorf("%+v", b.rt.files)
		}
		filepath.WalkDir(b.dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && strings.Contains(read(t, path), "hunter2") {
				t.Errorf("the secret is in %s", path)
			}
			return err
		})
	})
}

func TestStartWithoutSecret(t *testing.T) {
	for name, c := range map[string]struct {
		secrets []api.Secret
		configs []api.Config
		want    string
	}{
		"gone":          {nil, []api.Config{config("c1", "x")}, "secret password is gone: the cluster has it no more"},
		"another's":     {[]api.Secret{secret("s2", "x")}, []api.Config{config("c1", "x")}, "secret password is gone"},
		"config":        {[]api.Secret{secret("s1", "x")}, nil, "config conf is gone"},
		"bad templates": {[]api.Secret{secret("s1", "x")}, []api.Config{{ID: "c1", Spec: api.ConfigSpec{Data: []byte("{{"), Templating: &api.Driver{Name: "golang"}}}}, "config conf: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				defer b.close()
				ctl := prepared(t, b, filesTask())
				b.assign(c.secrets, c.configs)
				begun := time.Now()
				if err := ctl.Start(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v", err)
				}
				if took := time.Since(begun); took > goneAfter {
					t.Errorf("it took %v", took)
				}
				if b.j.at("create") >= 0 {
					t.Error("a container was made")
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // its stop ends the wait
		b := newBench(t)
		defer b.close()
		ctl := prepared(t, b, filesTask())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := ctl.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// A running task is taken over without its secrets being there.
func TestTakeOverWithoutSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		task := filesTask()
		c := prepared(t, b, task)
		b.assign([]api.Secret{secret("s1", "x")}, []api.Config{config("c1", "x")})
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.close()
		b.open()
		defer b.close()
		if s := mustGet(t, b, "web.1"); s.State != Running {
			t.Errorf("%v", s.State)
		}
		if err := controllerOf(t, b, task).Start(t.Context()); err != nil {
			t.Errorf("started again: %v", err)
		}
	})
}

// A new session with a manager says anew what there is: nothing is missed
// between two words of it, and what is not said again is gone.
func TestSessionsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.close()
		c := controllerOf(t, b, filesTask()).(*controller)
		b.assign([]api.Secret{secret("s1", "x")}, []api.Config{config("c1", "y")})
		b.node.Secrets().Reset()
		b.node.Configs().Reset()
		begun := time.Now()
		if files, err := c.files(t.Context()); len(files) != 2 || err != nil || time.Since(begun) != 0 {
			t.Errorf("%v, %v after %v", files, err, time.Since(begun))
		}
		b.assign(nil, []api.Config{config("c1", "y")})
		if files, err := c.files(t.Context()); err == nil {
			t.Errorf("%v", files)
		}
		b.assign([]api.Secret{secret("s1", "x")}, []api.Config{config("c1", "y")})
		b.node.Configs().Remove([]string{"c1"})
		b.node.Configs().Add()
		if files, err := c.files(t.Context()); err == nil {
			t.Errorf("%v", files)
		}
	})
}

func TestFilePaths(t *testing.T) {
	for name, want := range map[string][2]string{
		"a": {"/run/secrets/a", "/a"}, "a/b": {"/run/secrets/a/b", "/a/b"}, "/etc/x": {"/etc/x", "/etc/x"},
		"/etc//../x/": {"/x", "/x"}, "../x": {"/run/x", "/x"},
	} {
		if got := [2]string{SecretPath(name), ConfigPath(name)}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	for id, want := range map[string]int{"": 0, "0": 0, "1000": 1000} {
		if got, err := FileOwner(id); got != want || err != nil {
			t.Errorf("%q: %d, %v", id, got, err)
		}
	}
	for _, id := range []string{"-1", "root", "4294967296", "1 "} {
		if _, err := FileOwner(id); err == nil {
			t.Errorf("%q is taken", id)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
